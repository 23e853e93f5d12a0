"""Hold the complete state of a training, in memory and in a folder.

All randomness and the position in the data are functions of (seed, step). The saved state consists of the
weights, their moving average, the optimiser's moments, the best weights so far and a few numbers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.checkpoint import (
    CheckpointError,
    load_weights,
    read_json,
    read_tensors,
    weights,
    write_json,
    write_tensors,
)
from trainables.training.selected_weights import ScoredWeights, read_candidates, read_copies, write_candidates
from trainables.training.step import Learner

FORMAT = 2
"""Version of the format; increase it when older checkpoints can no longer be read."""
MODEL, BEST, OPTIMIZER, STATE = "model.safetensors", "best.safetensors", "optimizer.safetensors", "state.json"
AVERAGE = "average.safetensors"
COUNT = "step"
"""PyTorch's key for the number of steps that an optimiser has taken."""


@dataclass(slots=True)
class TrainingProgress:
    """Progress of a training."""

    step: int = 0
    """Optimiser steps taken."""
    seconds: float = 0.0
    """Seconds of work, without waiting time."""
    best_score: float | None = None
    """valid/accuracy, or minus valid/loss, of the best weights."""
    best_step: int = 0
    """Step at which the best weights were measured."""
    stale: int = 0
    """Number of validations since `best_step`."""
    halvings: int = 0
    """Number of times the learning rate was halved."""
    finished: bool = False

    @property
    def rate_scale(self) -> float:
        """Return the factor of the scheduled learning rate."""
        return 0.5**self.halvings


@dataclass(slots=True)
class TrainingState:
    """State that `save` writes and `restore` reads."""

    learner: Learner
    identity: Mapping[str, Any]
    """Settings and seed as JSON values; a checkpoint can be continued only with equal ones."""
    progress: TrainingProgress
    best: dict[str, Tensor] | None = None
    """Copy of the best weights, or the mean of several; None before the first selection, or if the last
    weights are reported.
    """
    candidates: list[ScoredWeights] = field(default_factory=list)
    """The best weights so far, if the mean of several is selected at the end."""

    @property
    def selected(self) -> dict[str, Tensor] | None:
        """Return the weights that a finished training reports; None for its last weights."""
        return self.learner.average if self.best is None else self.best

    def save(self, folder: Path) -> None:
        """Write the complete state into `folder`."""
        write_tensors(folder / MODEL, weights(self.learner.model))
        if not self.progress.finished:  # a finished training takes no more steps
            write_tensors(folder / OPTIMIZER, _moments(self.learner))
        if self.best is not None:
            write_tensors(folder / BEST, self.best)
        if self._needs_average:
            write_tensors(folder / AVERAGE, self.learner.average or {})
        scalars = {
            "format": FORMAT,
            "identity": self.identity,
            "progress": asdict(self.progress),
            "scaler": self.learner.scaler.state_dict(),
            "candidates": write_candidates(self.candidates, folder),
        }
        write_json(folder / STATE, scalars)

    def restore(self, folder: Path) -> None:
        """Continue from the state that `save` wrote. Raises CheckpointError if its settings differ."""
        scalars = _scalars(folder)
        _must_match(scalars["identity"], self.identity, folder)
        load_weights(self.learner.model, read_tensors(folder / MODEL), folder / MODEL)
        self.progress = TrainingProgress(**scalars["progress"])
        self.learner.rate_scale = self.progress.rate_scale
        if not self.progress.finished:
            _load_moments(self.learner, read_tensors(folder / OPTIMIZER))
        self.learner.scaler.load_state_dict(scalars["scaler"])
        device = self.learner.device
        self.best = read_copies(folder / BEST, device) if (folder / BEST).exists() else None
        self.candidates = read_candidates(scalars["candidates"], folder, device)
        if self._needs_average:
            _load_average(self.learner, read_tensors(folder / AVERAGE))

    @property
    def _needs_average(self) -> bool:
        """Return whether the moving average exists and is still needed, for training or as the result."""
        return self.learner.average is not None and not (self.progress.finished and self.best is not None)


@dataclass(frozen=True, slots=True)
class SelectedWeights:
    """Result of a finished training for re-evaluation."""

    weights: Mapping[str, Tensor]
    """Weights that were evaluated on the test splits."""
    step: int
    """Number of optimiser steps that produced the weights."""
    last_step: int
    """Number of optimiser steps of the complete training."""


def read_selected(folder: Path) -> SelectedWeights:
    """Return the selected weights of a finished training. Raises CheckpointError if it has not ended."""
    progress = TrainingProgress(**_scalars(folder)["progress"])
    if not progress.finished:
        raise CheckpointError(
            f"{folder} must be the checkpoint of a finished training, got one at step {progress.step}: "
            "finish the training first"
        )
    if (folder / BEST).exists():
        return SelectedWeights(read_tensors(folder / BEST), progress.best_step, progress.step)
    weights_file = AVERAGE if (folder / AVERAGE).exists() else MODEL
    return SelectedWeights(read_tensors(folder / weights_file), progress.step, progress.step)


def _scalars(folder: Path) -> dict[str, Any]:
    scalars = read_json(folder / STATE)
    if scalars.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder / STATE} must have format {FORMAT}, got {scalars.get('format')!r}: "
            "it was written by another version; train again or use that version"
        )
    progress = {field.name for field in fields(TrainingProgress)}
    keys = {"identity", "scaler", "candidates", "progress"}
    if not keys <= scalars.keys() or scalars["progress"].keys() != progress:
        raise CheckpointError(f"{folder / STATE} must hold {sorted(keys)} with progress {sorted(progress)}")
    return scalars


def _moments(learner: Learner) -> dict[str, Tensor]:
    """Return the optimiser's state as `<slot>:<parameter>`; parameters without any gradient lack one."""
    state = learner.optimizer.state
    return {
        f"{slot}:{name}": tensor
        for name, parameter in learner.model.named_parameters()
        for slot, tensor in state.get(parameter, {}).items()
    }


def _load_moments(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    parameters = dict(learner.model.named_parameters())
    learner.optimizer.state.clear()
    for key, tensor in tensors.items():
        slot, name = key.split(":", 1)
        parameter = parameters[name]
        # Step counts are on the host, which then reads them without waiting, unless a fused kernel uses them.
        counts = slot == COUNT and not learner.optimizer.defaults.get("fused")
        device = torch.device("cpu") if counts else parameter.device
        learner.optimizer.state[parameter][slot] = tensor.to(device, copy=True)


def _load_average(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    assert learner.average is not None
    for name, tensor in learner.average.items():
        tensor.copy_(tensors[name])


def _must_match(saved_state: Mapping[str, Any], current_state: Mapping[str, Any], folder: Path) -> None:
    saved_values, current_values = _flat(saved_state), _flat(current_state)
    different_settings = [
        f"{path}: saved {saved_values.get(path)!r}, now {current_values.get(path)!r}"
        for path in sorted(saved_values.keys() | current_values.keys())
        if saved_values.get(path) != current_values.get(path)
    ]
    if different_settings:
        raise CheckpointError(
            f"{folder} must be restored under the settings it was saved with, got other values of "
            f"{'; '.join(different_settings)}: change them back or start a new trial"
        )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Flatten nested mappings: return their values by dotted path."""
    if not isinstance(value, Mapping):
        return {path: value}
    return {
        inner: leaf
        for key, entry in value.items()
        for inner, leaf in _flat(entry, f"{path}.{key}" if path else key).items()
    }
