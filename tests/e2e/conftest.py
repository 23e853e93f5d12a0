"""The command line, called in this process."""

from tests.support.in_process import haltsweep

__all__ = ["haltsweep"]
