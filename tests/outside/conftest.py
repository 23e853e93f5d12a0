"""Fixture that calls the command line in this process."""

from tests.support.processes.in_process import haltsweep

__all__ = ["haltsweep"]
collect_ignore = ["project"]  # test_contracts.py runs these tests as their authors would
