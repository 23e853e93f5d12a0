"""What a forward pass does at each token, layer by layer, for whoever watches it; costs nothing else.

Recurrences tell their watcher, if there is one. What they compute does not depend on it: the cost of halting
is returned by the pass itself (`trainables.types.Encoded`), and only single examples are looked at like this.

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
"""Of a weight: the probability that no state before the layer was the token's last, or that the token has not
been composed into another one before the step."""


@dataclass(frozen=True)
class LayerSeen:
    """One layer on K of the tokens."""

    number: int
    """From 1."""
    tokens: Int[Tensor, " K"]
    """Where they are in the full batch."""
    weight: Float[Tensor, " K"]
    keeps: Bool[Tensor, " K"]
    """Tokens that kept the layer; the others had halted."""
    side: tuple[Shaped[Tensor, "K ..."], ...]
    """What the layer returned of each beside its next state."""


@dataclass
class PassSeen:
    """One pass of an encoder or a decoder over a full batch."""

    packing: Packing
    meaning: Meaning
    halts: bool = True
    """Whether tokens halt in it by themselves, were it before the first layer."""
    layers: list[LayerSeen] = field(default_factory=list)
    part: Int[Tensor, " K"] | None = None
    """Tokens of the part that is worked through, where the batch is."""

    def see(
        self,
        number: int,
        tokens: Int[Tensor, " K"],
        weight: Float[Tensor, " K"],
        keeps: Bool[Tensor, " K"],
        side: Sequence[Tensor] = (),
    ) -> None:
        """Layer `number` on `tokens`, counted within the part where there is one."""
        where = tokens if self.part is None else self.part.index_select(0, tokens)
        self.layers.append(LayerSeen(number, where, weight, keeps, tuple(side)))

    def running(self) -> Float[Tensor, "M L"]:
        """The weight of every layer at every token; -1 where the token had halted."""
        most = max((each.number for each in self.layers), default=0)
        device = self.packing.row.device
        found = torch.full((self.packing.row.shape[0], most), -1.0, device=device)
        for each in self.layers:
            weight = torch.where(each.keeps, each.weight.to(found.dtype), -1.0)
            found[each.tokens, each.number - 1] = weight
        return found


@dataclass
class ForwardWatch:
    """All that was seen of forward passes."""

    passes: list[PassSeen] = field(default_factory=list)
    """In the order in which they began; of encoder and decoder the encoder's comes first."""
    answers: list[Int[Tensor, " K"]] = field(default_factory=list)
    """Most probable classes, as heads predicted them."""
    parted: bool = False


_WATCH: ContextVar[ForwardWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching() -> Iterator[ForwardWatch]:
    """Inside, forward passes of this thread are seen."""
    watch = ForwardWatch()
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def begun(packing: Packing, meaning: Meaning = "survival", *, halts: bool = True) -> PassSeen | None:
    """Where a recurrence that begins on all tokens of `packing` tells its layers; None if nobody watches."""
    watch = _WATCH.get()
    if watch is None:
        return None
    if not watch.parted:
        watch.passes.append(PassSeen(packing, meaning, halts))
    watch.passes[-1].halts |= halts
    return watch.passes[-1]


@contextmanager
def in_parts(packing: Packing) -> Iterator[Callable[[Int[Tensor, " K"]], None]]:
    """Inside, recurrences begin on parts of `packing`; what is yielded takes the tokens that come next."""
    watch = _WATCH.get()
    if watch is None:
        yield lambda _: None
        return
    seen = PassSeen(packing, "survival", halts=False)
    watch.passes.append(seen)
    watch.parted = True

    def next_part(tokens: Int[Tensor, " K"]) -> None:
        seen.part = tokens

    try:
        yield next_part
    finally:
        watch.parted, seen.part = False, None


def answered(chosen: Int[Tensor, " K"]) -> None:
    """A head has predicted these classes."""
    watch = _WATCH.get()
    if watch is not None:
        watch.answers.append(chosen)
