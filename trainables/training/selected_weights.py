"""Compute the weights that are evaluated and reported: a moving average, and the best weights of a training.

A moving average is evaluated in place of the weights. The number of stored candidates for the best weights is
the number that is averaged at the end of the training. Averaging the last checkpoints: Vaswani et al.,
Attention Is All You Need, s. 6.1. Averaging the best ones: Tan et al., Sparse Universal Transformer, s. 4.1,
by negative log-likelihood, `select_by: loss` here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.checkpoint import load_weights, read_tensors, weights, write_tensors


def copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of `tensors` by name."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def update_average(average: Mapping[str, Tensor], model: nn.Module, decay: float) -> None:
    """Move `average` towards the weights of `model`: decay * average + (1 - decay) * weights."""
    model_weights = weights(model)
    float_names = [name for name, tensor in average.items() if tensor.is_floating_point()]
    update = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    update([average[name] for name in float_names], [model_weights[name] for name in float_names], 0)
    for name in average.keys() - {*float_names}:
        average[name].copy_(model_weights[name])


@contextmanager
def temporary_weights(model: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Replace the weights of `model` by `tensors` inside the block; None keeps the weights."""
    if tensors is None:
        yield
        return
    previous_weights = copy_tensors(weights(model))
    load_weights(model, tensors, Path("weights in memory"))
    yield
    load_weights(model, previous_weights, Path("weights in memory"))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredWeights:
    """Weights with the score of their validation."""

    score: float
    """Score of the validation: higher is better."""
    step: int
    """Optimiser steps that led to the weights."""
    weights: Mapping[str, Tensor]


def best_candidates(candidates: Iterable[ScoredWeights], count: int) -> list[ScoredWeights]:
    """Return the `count` candidates of highest score, ordered by step; equal scores prefer earlier steps."""
    best = sorted(candidates, key=lambda candidate: (-candidate.score, candidate.step))[:count]
    return sorted(best, key=lambda candidate: candidate.step)


def mean_weights(candidates: Sequence[ScoredWeights]) -> dict[str, Tensor]:
    """Average each tensor over `candidates`, in 64 bits; integer tensors are those of the last candidate."""
    averages = dict(candidates[-1].weights)
    for name, newest in averages.items():
        if newest.is_floating_point():
            total = torch.stack([candidate.weights[name].double() for candidate in candidates]).mean(0)
            averages[name] = total.to(newest.dtype)
    return averages


def write_candidates(candidates: Iterable[ScoredWeights], folder: Path) -> list[tuple[float, int]]:
    """Write the weights of each candidate; return their scores and steps, which `read_candidates` needs."""
    entries = []
    for candidate in candidates:
        write_tensors(_file(folder, candidate.step), candidate.weights)
        entries.append((candidate.score, candidate.step))
    return entries


def read_candidates(
    entries: Iterable[tuple[float, int]], folder: Path, device: torch.device
) -> list[ScoredWeights]:
    """Return the candidates that `write_candidates` wrote, copied to `device`.

    Raises:
        CheckpointError: A file is damaged.
    """
    return [ScoredWeights(score, step, read_copies(_file(folder, step), device)) for score, step in entries]


def read_copies(file: Path, device: torch.device) -> dict[str, Tensor]:
    """Return copies of the tensors of a file, which may be replaced during training, on `device`."""
    return {name: tensor.to(device, copy=True) for name, tensor in read_tensors(file).items()}


def _file(folder: Path, step: int) -> Path:
    return folder / f"kept-{step}.safetensors"
