"""Layers that are run again in the backward pass, in place of keeping all that they computed.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174), s. 4.1: between layers
the states are kept, and of the inside of layers that of one at a time. Results are the same: a layer that is
run again draws the dropout masks of its first run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainables.layers.dropout import Drawn, Keyed, drawn_in
from trainables.layers.tokens import KeysValues, Placed

Found = TypeVar("Found")


class Recomputable(nn.Module):
    """A module that whoever trains may ask to be run again in the backward pass."""

    recomputes = False
    """Whether that was asked for."""


class RecomputableLayer(Recomputable):
    """One that is run again as a whole. Inputs are tensors, and what is known of tokens."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """`forward`."""
        return self.use(super().__call__, *inputs, **named)

    def use(self, run: Callable[..., Found], *inputs: Any, **named: Any) -> Found:
        """`run(*inputs)`, a pass through this layer or a part of it."""
        return again_if_asked(self, run, *inputs, **named)


def again_if_asked(part: Recomputable, run: Callable[..., Found], *inputs: Any, **named: Any) -> Found:
    """`run(*inputs)`, a pass through modules of `part`, of which nothing inside is kept if asked for.

    What the layers of a pass share is made in each of them then: one that is run again finds nothing that was
    made in another.
    """
    if not (part.recomputes and torch.is_grad_enabled()):
        return run(*inputs, **named)
    begun, first = drawn_in(part), True

    def made(*given: Any, **also: Any) -> Found:
        nonlocal first
        alone, named_alone = map(_alone, given), {name: _alone(each) for name, each in also.items()}
        if first:
            first = False
            return run(*alone, **named_alone)
        with _drawing(begun):
            return run(*alone, **named_alone)

    # Nothing inside draws from the global generator.
    found: Found = checkpoint(made, *inputs, use_reentrant=False, preserve_rng_state=False, **named)
    return found


def _alone(value: Any) -> Any:
    return value.alone() if isinstance(value, Placed | KeysValues) else value


@contextmanager
def _drawing(begun: list[tuple[Keyed, Drawn]]) -> Iterator[None]:
    """Inside, modules draw what they drew from `begun` on."""
    present = [(module, module.drawn) for module, _ in begun]
    for module, state in begun:
        module.drawn = state
    try:
        yield
    finally:
        for module, state in present:
            module.drawn = state


def recompute(model: nn.Module) -> None:
    """Ask it of all layers of `model` that can be run again."""
    for module in model.modules():
        if isinstance(module, Recomputable):
            module.recomputes = True


def can_recompute(model: nn.Module) -> bool:
    """Whether any layer of `model` can be run again."""
    return any(isinstance(module, Recomputable) for module in model.modules())
