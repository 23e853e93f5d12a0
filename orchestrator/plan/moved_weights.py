"""Weights under which systems are looked at: the initial ones, and others that are moved away from them.

Biases are moved at random, and lone numbers, like a probability of halting, are pushed up, down, and apart
for different inputs. What moves is drawn from streams named after parameters: the same in every system.
"""

import torch
from torch import nn

from trainables.streams import torch_stream

SEED = 0
POINTS = 8
"""Weights under which two systems are compared."""
LATE = 2
"""Where lone numbers, like a probability of halting, are pushed down."""
RANDOM = 3
"""The first of them where lone numbers depend on the input."""
_FAR = 4.0
_NOISE = 0.5


@torch.no_grad()
def move(model: nn.Module, point: int) -> None:
    """Leave the initial weights at point 0; else move vectors at random, and what makes lone numbers far.

    A lone bias goes up at point 1 and down at LATE; from RANDOM on the weights beside it, and all that are
    zero, are random, so that the number, like a probability of halting, depends on the input.
    """
    if point == 0:
        return
    for name, parameter in model.named_parameters():
        alone, vector = parameter.numel() == 1, parameter.ndim == 1
        # One output, or weights that make outputs the same for all inputs, such as two logits of halting.
        gate = point >= RANDOM and not alone and not vector and (len(parameter) == 1 or not parameter.any())
        if not (alone or vector or gate):
            continue
        stream = torch_stream(SEED, "move", point, name)
        # A new tensor: the values may be shared with other runs of the model.
        if alone:
            parameter.data = parameter + {1: _FAR, LATE: -_FAR}.get(point, 0.0)
        elif vector:
            noise = torch.randn(parameter.shape, generator=stream)
            parameter.data = parameter.detach().clone().add_(noise, alpha=_NOISE)
        else:
            parameter.data = _FAR * torch.randn(parameter.shape, generator=stream)


@torch.no_grad()
def without_zeros(model: nn.Module) -> nn.Module:
    """The model, with random numbers for weights that are all zero."""
    for name, parameter in model.named_parameters():
        if not parameter.any():
            stream = torch_stream(SEED, "fill", name)
            # A new tensor: the values may be shared with other runs of the model.
            parameter.data = _NOISE * torch.randn(parameter.shape, generator=stream)
    return model
