"""Record the activity of a forward pass at each token, layer by layer, if a watcher is active.

Recurrences report to an active watcher; their results do not depend on it. The cost of halting is returned by
the pass itself (`trainables.types.Encoded`). Watchers are used only for single examples.

Shapes: M packed tokens in B rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.packing import Packing

Meaning = Literal["survival", "existence"]
"""Meaning of a weight. `survival`: the probability that the token has not halted before the layer.
`existence`: the probability that the token has not been composed into another one before the step."""


@dataclass(frozen=True)
class LayerRecord:
    """Record of one layer on K of the tokens."""

    number: int
    """Number of the layer, counted from 1."""
    tokens: Int[Tensor, " K"]
    """Indices of the tokens in the full batch."""
    weight: Float[Tensor, " K"]
    keeps: Bool[Tensor, " K"]
    """Tokens that kept the layer; the others had halted."""
    side: tuple[Shaped[Tensor, "K ..."], ...]
    """Outputs of the layer for each token in addition to its next state."""


@dataclass
class PassRecord:
    """Record of one pass of an encoder or a decoder over a full batch."""

    packing: Packing
    meaning: Meaning
    halts: bool = True
    """Whether tokens can halt in this pass, even before the first layer."""
    layers: list[LayerRecord] = field(default_factory=list)
    part: Int[Tensor, " K"] | None = None
    """Indices of the tokens of the current part, if the batch is processed in parts."""

    def record_layer(
        self,
        number: int,
        tokens: Int[Tensor, " K"],
        weight: Float[Tensor, " K"],
        keeps: Bool[Tensor, " K"],
        side: Sequence[Tensor] = (),
    ) -> None:
        """Record layer `number` on `tokens`, which are indices within the current part if there is one."""
        indices = tokens if self.part is None else self.part.index_select(0, tokens)
        self.layers.append(LayerRecord(number, indices, weight, keeps, tuple(side)))

    def weights_by_layer(self) -> Float[Tensor, "M L"]:
        """Return the weight of every layer at every token; -1 for layers after the token halted."""
        num_layers = max((record.number for record in self.layers), default=0)
        device = self.packing.row.device
        weights = torch.full((self.packing.row.shape[0], num_layers), -1.0, device=device)
        for record in self.layers:
            weight = torch.where(record.keeps, record.weight.to(weights.dtype), -1.0)
            weights[record.tokens, record.number - 1] = weight
        return weights


@dataclass
class ForwardWatch:
    """Records of all watched forward passes."""

    passes: list[PassRecord] = field(default_factory=list)
    """Passes in the order of their start; that of the encoder precedes that of the decoder."""
    answers: list[Int[Tensor, " K"]] = field(default_factory=list)
    """Most probable classes, as predicted by heads."""
    is_in_parts: bool = False


_WATCH: ContextVar[ForwardWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watch_passes() -> Iterator[ForwardWatch]:
    """Record forward passes of this thread within the context."""
    watch = ForwardWatch()
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def start_record(packing: Packing, meaning: Meaning = "survival", *, halts: bool = True) -> PassRecord | None:
    """Return the record for a recurrence that starts on `packing`; None without a watcher."""
    watch = _WATCH.get()
    if watch is None:
        return None
    if not watch.is_in_parts:
        watch.passes.append(PassRecord(packing, meaning, halts))
    watch.passes[-1].halts |= halts
    return watch.passes[-1]


@contextmanager
def record_parts(packing: Packing) -> Iterator[Callable[[Int[Tensor, " K"]], None]]:
    """Record recurrences on parts of `packing` as one pass; yield a function that sets the next part."""
    watch = _WATCH.get()
    if watch is None:
        yield lambda _: None
        return
    record = PassRecord(packing, "survival", halts=False)
    watch.passes.append(record)
    watch.is_in_parts = True

    def next_part(tokens: Int[Tensor, " K"]) -> None:
        record.part = tokens

    try:
        yield next_part
    finally:
        watch.is_in_parts, record.part = False, None


def record_answers(chosen: Int[Tensor, " K"]) -> None:
    """Record the classes that a head has predicted."""
    watch = _WATCH.get()
    if watch is not None:
        watch.answers.append(chosen)
