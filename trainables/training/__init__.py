"""Train any model on any task. Settings load without torch; `Training` is imported on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training.workload import Training as Training

NONDETERMINISTIC_METRICS = frozenset({"train/tokens_per_s", "train/seconds_per_epoch"})
"""Metrics that depend on the speed of the machine.

All other metrics are equal, bit for bit, when a trial is repeated on a CPU.
"""


def __getattr__(name: str) -> Any:
    if name == "Training":
        from trainables.training.workload import Training

        return Training
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
