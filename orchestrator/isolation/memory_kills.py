"""Detect whether a process was killed because memory ran out (OOM kill), which its signal does not show.

Linux counts its OOM kills, per control group and for the complete machine. Kills by daemons such as earlyoom
and systemd-oomd are not counted. So a kill while little memory is available counts as an OOM kill, too. If no
counter is readable, only the available memory decides.
"""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

import psutil

LOW_MEMORY = 0.1
"""Fraction of available memory below which daemons may kill processes."""
REMEMBERED = 20
"""Number of stored readings, since a large process may end seconds after the system has killed it."""
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
CONTROLLER = "memory"


class MemoryKills:
    """Readings of the OOM counter and of available memory while a process runs."""

    def __init__(self, counter: Path | None, available: Callable[[], float]) -> None:
        """Take the first reading.

        Args:
            counter: File with a line `oom_kill NUMBER`; None if no such file exists.
            available: Returns the fraction of available memory.
        """
        self._counter, self._available = counter, available
        self._readings: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        self.look()

    def look(self) -> None:
        """Take a reading."""
        self._readings.append((self._count(), self._available()))

    def happened(self) -> bool:
        """Return whether a process that was killed just now was killed by an OOM kill."""
        memory_was_low = self._readings[-1][1] < LOW_MEMORY
        return memory_was_low or self._count() > self._readings[0][0]

    def _count(self) -> int:
        try:
            match = _COUNT.search(self._counter.read_text(encoding="ascii")) if self._counter else None
        except (OSError, ValueError):
            return 0
        return int(match[1]) if match else 0


def memory_kills() -> MemoryKills:
    """Return readings for the control group of this process."""
    return MemoryKills(counter_file(Path("/")), _available)


def counter_file(root: Path) -> Path | None:
    """Return the file below `root` that counts OOM kills, preferably of this process's control group."""
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        groups = []
    mount = root / "sys/fs/cgroup"
    places: list[Path] = []
    for line in groups:
        _, controllers, group = line.split(":", 2)
        # In a container, the path may be that on the machine, while only the container's group is mounted.
        possible_groups = [group.strip("/"), ""]
        if controllers == "":
            places += [mount / cgroup / "memory.events" for cgroup in possible_groups]
        elif CONTROLLER in controllers.split(","):
            places += [mount / CONTROLLER / cgroup / "memory.oom_control" for cgroup in possible_groups]
    places.append(root / "proc/vmstat")
    return next((path for path in places if _counts(path)), None)


def _counts(path: Path) -> bool:
    try:
        return _COUNT.search(path.read_text(encoding="ascii")) is not None
    except (OSError, ValueError):
        return False


def _available() -> float:
    memory = psutil.virtual_memory()
    return float(memory.available / memory.total)
