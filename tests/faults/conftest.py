"""The command line, called in this process."""

from tests.support.processes.in_process import haltsweep, untracked

__all__ = ["haltsweep", "untracked"]
