"""Fixture that calls the command line in this process."""

from tests.support.processes.in_process import haltsweep

__all__ = ["haltsweep"]
