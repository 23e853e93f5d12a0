"""Layers that can be recomputed in the backward pass instead of storing all their activations.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174), s. 4.1. States between
layers are stored; activations inside layers exist for one layer at a time. Results are unchanged: a
recomputed layer uses the dropout masks of its first run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainables.layers.dropout import KeyedModule, StreamState, stream_states
from trainables.layers.tokens import KeysValues, PlacedVectors

Result = TypeVar("Result")


class Recomputable(nn.Module):
    """A module that can be recomputed in the backward pass."""

    recomputes = False
    """Whether recomputation is enabled."""


class RecomputableLayer(Recomputable):
    """A module that is recomputed as a unit. Inputs are tensors, tokens (`PlacedVectors`) or `KeysValues`."""

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Run `forward`, with recomputation if enabled."""
        return self.use(super().__call__, *inputs, **keywords)

    def use(self, run: Callable[..., Result], *inputs: Any, **keywords: Any) -> Result:
        """Return `run(*inputs, **keywords)`, a pass through this layer or a part of it."""
        return run_recomputable(self, run, *inputs, **keywords)


def run_recomputable(part: Recomputable, run: Callable[..., Result], *inputs: Any, **keywords: Any) -> Result:
    """Return `run(*inputs, **keywords)`, and store no activations if recomputation is enabled for `part`.

    `run` is a pass through modules of `part`. With recomputation, values that layers would share are computed
    in each layer, because a recomputed layer cannot use values cached by another layer.
    """
    if not (part.recomputes and torch.is_grad_enabled()):
        return run(*inputs, **keywords)
    stream_states_before, is_first_run = stream_states(part), True

    def run_or_repeat(*value: Any, **value_keywords: Any) -> Result:
        nonlocal is_first_run
        copies, keyword_copies = (
            map(_without_cache, value),
            {name: _without_cache(item) for name, item in value_keywords.items()},
        )
        if is_first_run:
            is_first_run = False
            return run(*copies, **keyword_copies)
        with _with_streams(stream_states_before):
            return run(*copies, **keyword_copies)

    # No module inside draws from the global generator.
    result: Result = checkpoint(
        run_or_repeat, *inputs, use_reentrant=False, preserve_rng_state=False, **keywords
    )
    return result


def _without_cache(value: Any) -> Any:
    return value.without_cache() if isinstance(value, PlacedVectors | KeysValues) else value


@contextmanager
def _with_streams(states: list[tuple[KeyedModule, StreamState]]) -> Iterator[None]:
    """Set the random streams of modules to `states` within the context, and restore them afterwards."""
    previous_states = [(module, module.stream_state) for module, _ in states]
    for module, state in states:
        module.stream_state = state
    try:
        yield
    finally:
        for module, state in previous_states:
            module.stream_state = state


def recompute(model: nn.Module) -> None:
    """Enable recomputation for all layers of `model` that support it."""
    for module in model.modules():
        if isinstance(module, Recomputable):
            module.recomputes = True


def can_recompute(model: nn.Module) -> bool:
    """Return whether any layer of `model` can be recomputed."""
    return any(isinstance(module, Recomputable) for module in model.modules())
