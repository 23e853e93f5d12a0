"""The best weights of a training, as many as are averaged at its end.

Of the last checkpoints: Vaswani et al., Attention Is All You Need, s. 6.1. Of the best ones: Tan et al.,
Sparse Universal Transformer, s. 4.1, by their negative log-likelihood, which is `select_by: loss` here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainables.checkpoint import read_tensors, write_tensors


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Weights and how good they are."""

    score: float
    """How good the validation was: more is better."""
    step: int
    """Optimiser steps behind them."""
    weights: Mapping[str, Tensor]


def ranked(shelf: Iterable[Kept], room: int) -> list[Kept]:
    """The best `room` in the order of their steps; of equally good ones the earlier."""
    best = sorted(shelf, key=lambda kept: (-kept.score, kept.step))[:room]
    return sorted(best, key=lambda kept: kept.step)


def mean(shelf: Sequence[Kept]) -> dict[str, Tensor]:
    """The mean of every tensor, added up in 64 bits; of what are no real numbers the last."""
    found = dict(shelf[-1].weights)
    for name, last in found.items():
        if last.is_floating_point():
            total = torch.stack([kept.weights[name].double() for kept in shelf]).mean(0)
            found[name] = total.to(last.dtype)
    return found


def write_shelf(shelf: Iterable[Kept], folder: Path) -> list[tuple[float, int]]:
    """Write the weights; what `read_shelf` must be given to find them."""
    for kept in shelf:
        write_tensors(_file(folder, kept.step), kept.weights)
    return [(kept.score, kept.step) for kept in shelf]


def read_shelf(listed: Iterable[tuple[float, int]], folder: Path, device: torch.device) -> list[Kept]:
    """What `write_shelf` wrote, in memory of its own."""
    return [
        Kept(
            score,
            step,
            {
                name: tensor.to(device, copy=True)
                for name, tensor in read_tensors(_file(folder, step)).items()
            },
        )
        for score, step in listed
    ]


def _file(folder: Path, step: int) -> Path:
    return folder / f"kept-{step}.safetensors"
