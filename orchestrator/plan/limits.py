"""Refuse trials that no machine could hold or finish, before anything is built, computed or written."""

from collections.abc import Callable

from orchestrator.plan.display.format import bytes_amount
from orchestrator.plan.training_code.settings import System
from trainables.costs import depth_range, flops, passes, peak_memory_bytes

MOST_BYTES = 32 << 40
"""Memory of the largest single machines in bytes; a trial never uses several machines."""
MOST_FLOPS = 1e27
"""Maximum FLOPs of a trial, slightly above the largest published trainings."""


def size_problem(system: System, count: Callable[[System], int]) -> str | None:
    """Return why no machine could train `config`; None if one could.

    Args:
        system: Settings of a trial.
        count: Returns the number of parameters of a system.

    Raises:
        ValueError: The system cannot be built.
    """
    length, rows = system.shape.length_max, rows_per_step(system)
    recomputes = system.train.checkpoint_activations
    work = (
        system.train.steps
        * passes(recomputes=recomputes)
        * rows
        * flops(system.model, system.shape, length, depth_range(system.model, length)[0])
    )
    if work > MOST_FLOPS:
        return (
            f"a trial must take at most {MOST_FLOPS:g} FLOPs, got at least {work:.2g} in "
            f"{system.train.steps:,} steps of {rows:,} examples; use fewer, or a smaller model"
        )
    weights = count(system)
    at_once = rows_at_once(system)
    needed_bytes = peak_memory_bytes(
        system.model, system.shape, at_once, length, weights, recomputes=recomputes
    )
    if needed_bytes > MOST_BYTES:
        return (
            f"a training step must fit into {bytes_amount(MOST_BYTES)} of memory, got "
            f"{bytes_amount(needed_bytes)} for {at_once:,} examples of up to {length:,} tokens; make the "
            "batch, inputs or model smaller"
        )
    return None


def rows_per_step(system: System) -> int:
    """Return the number of examples per training step if all examples have the maximum length."""
    return system.train.batch_rows(_longest_sequence(system))


def rows_at_once(system: System) -> int:
    """Return the number of examples per forward pass if all examples have the maximum length."""
    return system.train.part_rows(_longest_sequence(system))


def _longest_sequence(system: System) -> int:
    return max(system.shape.length_max, system.shape.answer_length_max or 0)
