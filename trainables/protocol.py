"""The contract between a trainable and its scheduler. Loads no torch: schedulers stay light."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Phase = Literal["search", "confirm", "posthoc"]
TRIALS = "haltsweep-trial-"
"""Prefix of temporary folders of running trials; the process id follows, so that killed ones' are cleared."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one trial reports at one step. A trial's measurements have strictly increasing steps."""

    step: int
    """Optimiser steps taken since the trial began, across restarts."""
    seconds: float
    """Seconds of work since the trial began, across restarts, waiting not counted."""
    metrics: Mapping[str, float]
    """Metrics by name: `<split>/<quantity>` such as `valid/accuracy`, or a name without a split. A trial ends
    if an objective, a primary outcome or `train/loss` is not finite; other values need not be finite.
    """
    examples: Sequence[Mapping[str, Any]] = ()
    """What single examples show at the end of a confirm trial, as JSON values of a few kilobytes: see
    `trainables.training.examples`."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Texts that describe the trial, by name; the newest text of a name counts."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that a workload needs to know to run one trial."""

    settings: Mapping[str, Any]
    """Full settings of the trial, JSON values only: the mappings `task`, `model` and `train`, or of own
    training code the fields of its baseline."""
    seed: int
    """Root of every named random stream of the trial; the same seed in two arms pairs them."""
    phase: Phase = "search"
    splits: tuple[str, ...] = ()
    """Test splits to read after the last step; empty while searching."""
    data_dir: Path = field(default_factory=lambda: Path("data"))
    source: Path | None = None
    """Checkpoint folder to re-evaluate without training (phase `posthoc`)."""
    folder: Path | None = None
    """Folder for files of this trial; None if the workload should create a temporary one."""
    halting_examples: int = 0
    """How many examples of the first of `splits` are looked at one by one at the end, in phase `confirm`."""


class Workload(Protocol):
    """One trial in progress. Built as `Workload(job)`; drivers call nothing else."""

    def __init__(self, job: Job) -> None: ...

    @property
    def finished(self) -> bool:
        """Whether the last measurement has been made."""

    def advance(self) -> Measurement | None:
        """Work until the next report; None if the work has ended and there is nothing more to report.

        Raises `Diverged` on a loss that is not finite.
        """

    def save(self, folder: Path) -> None:
        """Write the complete state into the existing, empty `folder`."""

    def restore(self, folder: Path) -> None:
        """Continue, bit for bit on a CPU, from what `save` wrote."""

    def close(self) -> None:
        """Free memory and files; the workload is not used again."""


class Infeasible(Exception):
    """Raised by a trial whose settings cannot be trained: the search draws another trial in its place."""


class Diverged(Exception):
    """Training stopped giving finite numbers: an outcome of the trial, not a fault of the program."""

    def __init__(self, step: int, loss: float, gradient_norm: float | None = None) -> None:
        norm = "" if gradient_norm is None else f" and {gradient_norm=}"
        super().__init__(f"the loss and its gradient must stay finite, got {loss=}{norm} at {step=}")
        self.step = step
        self.loss = loss
        self.gradient_norm = gradient_norm

    def __reduce__(self) -> tuple[type["Diverged"], tuple[int, float, float | None]]:
        # Workers send it home pickled; by default only the message would travel, and unpickling would fail.
        return Diverged, (self.step, self.loss, self.gradient_norm)
