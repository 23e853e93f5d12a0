"""Weights at which models are compared: the initial ones, and others that are moved away from them.

Two models may agree at their initial weights but differ elsewhere: two halting thresholds, for example, may
be reached in the same layer. The moves come from random streams named after parameters, so they are the same
in every model.
"""

from enum import IntEnum

import torch
from torch import nn

from trainables.streams import torch_stream

SEED = 0
_FAR = 4.0
_NOISE = 0.5


class TestedWeights(IntEnum):
    """Weights at which a model is run."""

    INITIAL = 0
    """Initial weights of the model."""
    EARLY = 1
    """Vectors are random; a single bias, such as that of a halting probability, is high, so halting is
    early."""
    LATE = 2
    """As EARLY, but single biases are low, so halting is late."""
    RANDOM = 3
    """Vectors, matrices with one output and matrices that start as zeros are random, so a halting probability
    depends on the input."""
    RANDOM_AGAIN = 4
    """As RANDOM, with another random stream."""
    RANDOM_THIRD = 5
    """As RANDOM, with a third random stream."""


@torch.no_grad()
def perturb(model: nn.Module, point: TestedWeights) -> None:
    """Move the initial weights of `model` to `point`."""
    if point == TestedWeights.INITIAL:
        return
    for name, parameter in model.named_parameters():
        is_scalar, is_vector = parameter.numel() == 1, parameter.ndim == 1
        gate = point >= TestedWeights.RANDOM and not is_scalar and not is_vector
        gate = gate and (len(parameter) == 1 or not parameter.any())
        stream = torch_stream(SEED, "move", int(point), name)
        if is_scalar:
            parameter.add_({TestedWeights.EARLY: _FAR, TestedWeights.LATE: -_FAR}.get(point, 0.0))
        elif is_vector:
            parameter.add_(torch.randn(parameter.shape, generator=stream), alpha=_NOISE)
        elif gate:
            parameter.copy_(_FAR * torch.randn(parameter.shape, generator=stream))
