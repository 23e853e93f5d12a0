"""Several models of one kind in one forward pass, their weights stacked: what layers must know of that.

The pass is one under `torch.func.vmap`: each model, a member of the stack, sees a batch of its own. Shapes
are then the same for all members, so that rows are padded and masked (`layers.packing.PaddedRows`) and no
decision waits for the host. What has no weights, or has kernels for a further axis, runs once on the tensors
of all members (`for_all`), in as many kernels as for one.

Legend: W members.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

Found = TypeVar("Found", bound=Tensor | tuple[Tensor, ...])


@dataclass(frozen=True)
class Stack:
    """The members that a forward pass is of."""

    size: int
    """W."""
    member: Int[Tensor, ""]
    """The number of the member, as seen by each."""
    most_steps: int | None = None
    """The greatest of `Batch.steps` in any member's batch, where the task gives them."""
    norm: Callable[[nn.LayerNorm, Tensor], Tensor] | None = field(default=None, compare=False, repr=False)
    """The norms of all members (`layers.stacked_norms`), of a model that has any."""


_STACK: ContextVar[Stack | None] = ContextVar("stack", default=None)


@contextmanager
def stacking(stack: Stack) -> Iterator[None]:
    """Inside, forward passes of this thread are of all members of `stack`."""
    token = _STACK.set(stack)
    try:
        yield
    finally:
        _STACK.reset(token)


def stack() -> Stack | None:
    """The stack that the present forward pass is of; None where it is of one model."""
    return _STACK.get()


def stacked() -> bool:
    """Whether the present forward pass is of several models."""
    return _STACK.get() is not None


class _ForAll(torch.autograd.Function):
    """Leaves `vmap` for as long as a function runs."""

    @staticmethod
    def forward(*_: Any) -> Any:
        """Never called: the member is batched, so that it is always for `vmap`."""
        raise AssertionError("what runs for all members must see all of them")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """What `run` does is recorded as it runs."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[int | None], run: Callable[..., Any], *tensors: Tensor | None
    ) -> tuple[Any, Any]:
        leading = [
            _leading(each, axis, info.batch_size) for each, axis in zip(tensors, in_dims[1:], strict=True)
        ]
        token = _STACK.set(None)
        try:
            found = run(*leading[1:])
        finally:
            _STACK.reset(token)
        return found, (0,) * len(found) if isinstance(found, tuple) else 0


def _leading(each: Tensor | None, axis: int | None, size: int) -> Tensor | None:
    """The tensors of all members, their axis the first one."""
    if each is None:
        return None
    return each.expand(size, *each.shape) if axis is None else each.movedim(axis, 0)


def for_all(run: Callable[..., Found], *tensors: Shaped[Tensor, "..."] | None) -> Found:
    """`run` on the `tensors` of all members, stacked along a first axis, as its result must be."""
    present = _STACK.get()
    assert present is not None, "only a pass of several models has members"
    found: Found = _ForAll.apply(run, present.member, *tensors)  # type: ignore[no-untyped-call]
    return found


def by_token(x: Shaped[Tensor, "M D"]) -> Shaped[Tensor, "M D"]:
    """The same in memory where the vectors of one token of all members are beside each other: what norms want
    and what is added onto it keeps."""

    def moved(x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous().transpose(0, 1)

    return for_all(moved, x)


def by_row(x: Shaped[Tensor, "N B"]) -> Shaped[Tensor, "N B"]:
    """The same of numbers of rows, so that what is chosen by them for each token keeps that layout."""

    def moved(x: Tensor) -> Tensor:
        return x.movedim(0, -1).contiguous().movedim(-1, 0)

    return for_all(moved, x)
