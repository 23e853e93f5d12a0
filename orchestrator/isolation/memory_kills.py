"""Tells whether a killed process was killed because memory had run out: the signal is SIGKILL either way.

Linux counts the processes that it killed for want of memory, for each control group and for the whole
machine. Daemons such as earlyoom and systemd-oomd are not counted; they act when little memory is left.
Where neither can be read, nobody is taken to be killed for memory.
"""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

import psutil

SHORT = 0.1
"""Fraction of memory that is still available when daemons kill."""
REMEMBERED = 20
"""Number of looks back: a large process may end seconds after the system has killed it."""
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
CONTROLLER = "memory"


class MemoryKills:
    """Looks at the counters from time to time while a process runs."""

    def __init__(self, counter: Path | None, available: Callable[[], float]) -> None:
        """Look for the first time.

        Args:
            counter: File with a line `oom_kill NUMBER`; None if there is none.
            available: Returns the fraction of memory that is available.
        """
        self._counter, self._available = counter, available
        self._looks: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        self.look()

    def look(self) -> None:
        """Read the counters."""
        self._looks.append((self._count(), self._available()))

    def happened(self) -> bool:
        """Return whether a process that has just been killed was killed because memory had run out."""
        was_short = self._looks[-1][1] < SHORT
        return was_short or self._count() > self._looks[0][0]

    def _count(self) -> int:
        try:
            found = _COUNT.search(self._counter.read_text(encoding="ascii")) if self._counter else None
        except (OSError, ValueError):
            return 0
        return int(found[1]) if found else 0


def memory_kills() -> MemoryKills:
    """Return the counters for processes in the control group of this process."""
    return MemoryKills(counter_file(Path("/")), _available)


def counter_file(root: Path) -> Path | None:
    """Return the file below `root` that counts kills, of this process's control group if possible."""
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        groups = []
    mount = root / "sys/fs/cgroup"
    places: list[Path] = []
    for line in groups:
        _, controllers, group = line.split(":", 2)
        # Within a container the path may be that of the machine, of which only the end is mounted.
        inside = [group.strip("/"), ""]
        if controllers == "":
            places += [mount / each / "memory.events" for each in inside]
        elif CONTROLLER in controllers.split(","):
            places += [mount / CONTROLLER / each / "memory.oom_control" for each in inside]
    places.append(root / "proc/vmstat")
    return next((each for each in places if _counts(each)), None)


def _counts(path: Path) -> bool:
    try:
        return _COUNT.search(path.read_text(encoding="ascii")) is not None
    except (OSError, ValueError):
        return False


def _available() -> float:
    memory = psutil.virtual_memory()
    return float(memory.available / memory.total)
