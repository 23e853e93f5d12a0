"""What state a sweep is in, in one word; written here and nowhere else."""

from enum import StrEnum


class State(StrEnum):
    """One word a sweep."""

    RUNNING = "running"
    WAITING = "waiting"
    """Nobody runs it and something is left to do: `haltsweep resume` goes on."""
    FINISHED = "finished"
    FAILED = "failed"
    """Every trial has ended, and every one of them failed."""
    DAMAGED = "damaged"
    """It cannot be read."""


def state_of(*, held: bool, planned: int, ended: int, failed: int) -> State:
    """Of a sweep that can be read."""
    if held:
        return State.RUNNING
    if ended < planned:
        return State.WAITING
    return State.FAILED if ended and failed == ended else State.FINISHED
