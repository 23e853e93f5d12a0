"""Refuse trials that no machine could hold or finish, before anything is built, computed or written."""

from collections.abc import Callable

from orchestrator.plan.display.format import bytes_amount
from orchestrator.plan.training_code.settings import ParsedSettings
from trainables.costs import depth_range, flops, passes, peak_memory_bytes

MAX_TRIAL_BYTES = 32 << 40
"""Memory of the largest single machines in bytes; a trial never uses several machines."""
MAX_TRIAL_FLOPS = 1e27
"""Maximum FLOPs of a trial, slightly above the largest published trainings."""


def size_problem(config: ParsedSettings, count_parameters: Callable[[ParsedSettings], int]) -> str | None:
    """Return why no machine could train `config`; None if one could.

    Args:
        config: Settings of a trial.
        count_parameters: Returns the number of parameters of a config.

    Raises:
        ValueError: The config cannot be built.
    """
    length, rows = config.shape.length_max, rows_per_step(config)
    recomputes = config.train.checkpoint_activations
    row_flops = flops(config.model, config.shape, length, depth_range(config.model, length)[0])
    work = config.train.steps * passes(recomputes=recomputes) * rows * row_flops
    if work > MAX_TRIAL_FLOPS:
        return (
            f"a trial must take at most {MAX_TRIAL_FLOPS:g} FLOPs, got at least {work:.2g} in "
            f"{config.train.steps:,} steps of {rows:,} examples; use fewer, or a smaller model"
        )
    weights = count_parameters(config)
    batch_rows = rows_at_once(config)
    needed_bytes = peak_memory_bytes(
        config.model, config.shape, batch_rows, length, weights, recomputes=recomputes
    )
    if needed_bytes > MAX_TRIAL_BYTES:
        return (
            f"a training step must fit into {bytes_amount(MAX_TRIAL_BYTES)} of memory, got "
            f"{bytes_amount(needed_bytes)} for {batch_rows:,} examples of up to {length:,} tokens; make the "
            "batch, inputs or model smaller"
        )
    return None


def rows_per_step(config: ParsedSettings) -> int:
    """Return the number of examples per training step if all examples have the maximum length."""
    return config.train.batch_rows(_longest_sequence(config))


def rows_at_once(config: ParsedSettings) -> int:
    """Return the number of examples per forward pass if all examples have the maximum length."""
    return config.train.part_rows(_longest_sequence(config))


def _longest_sequence(config: ParsedSettings) -> int:
    return max(config.shape.length_max, config.shape.answer_length_max or 0)
