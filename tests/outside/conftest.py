"""The command line, called in this process."""

from tests.support.processes.in_process import haltsweep

__all__ = ["haltsweep"]
collect_ignore = ["project"]  # tests of somebody else: test_contracts.py runs them as they would
