"""What state a sweep is in, in one word; written here and nowhere else."""

from enum import StrEnum


class SweepState(StrEnum):
    """One word a sweep."""

    RUNNING = "running"
    UNFINISHED = "unfinished"
    """Nobody runs it and something is left to do: `haltsweep resume` goes on."""
    FINISHED = "finished"
    FAILED = "failed"
    """Every trial has ended, and every one of them failed."""
    DAMAGED = "damaged"
    """It cannot be read."""


def state_of(*, held: bool, planned: int, ended: int, failed: int) -> SweepState:
    """Of a sweep that can be read."""
    if held:
        return SweepState.RUNNING
    if ended < planned:
        return SweepState.UNFINISHED
    return SweepState.FAILED if ended and failed == ended else SweepState.FINISHED
