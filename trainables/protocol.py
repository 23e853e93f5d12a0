"""Define the contract between a trainable and its scheduler; schedulers import it without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Phase = Literal["search", "confirm", "posthoc"]
TRIALS = "haltsweep-trial-"
"""Prefix of temporary folders of running trials. The process id follows, so that folders of killed processes
can be deleted.
"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One report of a trial at one step. A trial's measurements have strictly increasing steps."""

    step: int
    """Optimiser steps taken since the trial began, across restarts."""
    seconds: float
    """Seconds of work since the trial began, across restarts, without waiting time."""
    metrics: Mapping[str, float]
    """Metrics by name: `<split>/<quantity>` such as `valid/accuracy`, or a name without a split. A trial ends
    if an objective, a primary outcome or `train/loss` is not finite; other values need not be finite.
    """
    examples: Sequence[Mapping[str, Any]] = ()
    """Behaviour of the model on single examples at the end of a confirm trial, as JSON values of a few
    kilobytes: see `trainables.training.examples`.
    """
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Texts that describe the trial, by name. A later text replaces an earlier one of the same name."""


def repeated_step_message(step: int, last_step: int) -> str:
    """Return the error of a report whose step is not after the previous one."""
    return (
        f"steps must increase, got {step} after {last_step}; report all metrics of a step in one call, and a "
        f"test after the last step as step {last_step + 1}"
    )


@dataclass(frozen=True, slots=True)
class Job:
    """Specification of one trial for a workload."""

    settings: Mapping[str, Any]
    """Full settings of the trial, JSON values only: the mappings `task`, `model` and `train`, or for a custom
    trainable the fields of its baseline.
    """
    seed: int
    """Root of every named random stream of the trial; the same seed in two arms pairs them."""
    phase: Phase = "search"
    splits: tuple[str, ...] = ()
    """Test splits to evaluate after the last step; empty in phase `search`."""
    data_dir: Path = field(default_factory=lambda: Path("data"))
    source: Path | None = None
    """Checkpoint folder to re-evaluate without training (phase `posthoc`)."""
    folder: Path | None = None
    """Folder for files of this trial; None if the workload should create a temporary one."""
    halting_examples: int = 0
    """Number of examples of the first split in `splits` that are recorded one by one at the end of phase
    `confirm`.
    """


class Workload(Protocol):
    """One trial in progress, built as `Workload(job)`. Drivers use only the members listed here."""

    def __init__(self, job: Job) -> None: ...

    @property
    def finished(self) -> bool:
        """Return whether the last measurement has been returned."""

    def advance(self) -> Measurement | None:
        """Continue the trial until its next report and return the report; None if the trial has ended.

        Raises:
            Diverged: The loss is not finite.
        """

    def save(self, folder: Path) -> None:
        """Write the complete state into the existing, empty `folder`."""

    def restore(self, folder: Path) -> None:
        """Continue from the state that `save` wrote, bit for bit on a CPU."""

    def close(self) -> None:
        """Free memory and files; the workload is not used afterwards."""


class Infeasible(Exception):
    """Settings of a trial cannot be trained; the search draws another trial instead."""


class Diverged(Exception):
    """Loss or gradient of a trial is not finite: an outcome of the trial, not a fault of the program."""

    def __init__(self, step: int, loss: float, gradient_norm: float | None = None) -> None:
        norm = "" if gradient_norm is None else f" and {gradient_norm=}"
        super().__init__(f"the loss and its gradient must stay finite, got {loss=}{norm} at {step=}")
        self.step = step
        self.loss = loss
        self.gradient_norm = gradient_norm

    def __reduce__(self) -> tuple[type["Diverged"], tuple[int, float, float | None]]:
        # Workers send this error pickled. The default pickling passes only the message, so unpickling would
        # fail.
        return Diverged, (self.step, self.loss, self.gradient_norm)
