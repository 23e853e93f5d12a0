"""Fixtures that call the command line in the test process."""

from tests.support.processes.in_process import haltsweep, untracked

__all__ = ["haltsweep", "untracked"]
