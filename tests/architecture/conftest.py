"""The command line, called in this process."""

from tests.support.processes.in_process import haltsweep

__all__ = ["haltsweep"]
