"""Detect whether a process was killed because memory ran out (OOM kill), which its signal does not show.

Linux counts its OOM kills on the complete machine, those in control groups included. Kills by daemons such as
earlyoom and systemd-oomd are not counted. So a kill while little memory is available counts as an OOM kill,
too. If the counter is not readable, only the available memory decides.
"""

import re
from collections import deque
from contextlib import suppress
from pathlib import Path

import psutil

LOW_MEMORY_FRACTION = 0.1
"""Fraction of available memory below which daemons may kill processes."""
MAX_READINGS = 20
"""Number of stored readings, since a large process may end seconds after the system has killed it."""
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
COUNTER_FILE = Path("/proc/vmstat")
"""File with a line `oom_kill NUMBER`."""


class MemoryKills:
    """Readings of the OOM counter and of available memory while a process runs."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, float]] = deque(maxlen=MAX_READINGS)
        self.take_reading()

    def take_reading(self) -> None:
        """Take a reading of the counter and of the fraction of available memory."""
        memory = psutil.virtual_memory()
        self._readings.append((_count_kills(), memory.available / memory.total))

    def was_oom_kill(self) -> bool:
        """Return whether a process that was killed just now was killed by an OOM kill."""
        return self._readings[-1][1] < LOW_MEMORY_FRACTION or _count_kills() > self._readings[0][0]


def _count_kills() -> int:
    with suppress(OSError):
        if match := _COUNT.search(COUNTER_FILE.read_text(encoding="ascii")):
            return int(match[1])
    return 0
