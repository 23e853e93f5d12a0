"""Fixtures that call the command line in this process."""

from tests.support.processes.in_process import haltsweep, untracked

__all__ = ["haltsweep", "untracked"]
