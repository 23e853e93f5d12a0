"""One step of soft composition (`recurrence.composition`) as a function of tensors: what is compiled.

Legend: M packed tokens in B rows of T columns, C the width of a state, D of what the rest of the model sees.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from trainables.regions.block import Affine, normed
from trainables.regions.compiling import region
from trainables.regions.heads import gather
from trainables.regions.masks import ElementMask, drop
from trainables.regions.rows import RowPlaces, exact, padded, require_alike

EPSILON = 1e-8
"""Added to every term of a denominator."""
Activation = Callable[[Tensor], Tensor]


class CellWeights(NamedTuple):
    """Of a recursive cell (`layers.cells`)."""

    inner: Affine | None
    """Of the gated recursive cell; the tree LSTM has none."""
    outer: Affine
    norm: Affine | None


class ScorerWeights(NamedTuple):
    """Of what scores positions."""

    inner: Affine
    outer: Affine
    taken: Tensor | None
    untaken: Tensor | None


class Composing(NamedTuple):
    """Rows that have not halted."""

    states: Float[Tensor, "M C"]
    exist: Float[Tensor, " M"]
    took: Float[Tensor, " M"]
    free: Bool[Tensor, " M"]
    rows: RowPlaces
    row: Int[Tensor, " M"]
    """Of each token the number of its row."""
    place: Int[Tensor, " M"]
    """In the full batch, as masks read it."""


class _FirstOnTheRight(torch.autograd.Function):
    """R_ij = min(e_j, max(0, 1 - sum_{i<k<j} e_k)), by the gradient of `layers.neighbours`."""

    @staticmethod
    def forward(ctx: Any, exist: Tensor) -> Tensor:
        here = torch.arange(exist.shape[-1], device=exist.device)
        query = here[:, None]
        upper = here > query
        wide = torch.where(upper, exist[:, None], 0.0)
        before = F.pad(exist, (1, 0))[:, None, : exist.shape[-1]]
        rest = 1 - torch.where(here > query + 1, before, 0.0).cumsum(-1)
        over = wide > rest
        ctx.save_for_backward(over.logical_not() & upper, over & (rest >= 0))
        return torch.minimum(wide, rest.clamp(min=0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        whole, first = ctx.saved_tensors
        (grad,) = grads
        there = torch.where(first, grad, 0.0).sum(-1, keepdim=True)
        return torch.where(whole, grad - there, 0.0).sum(-2)


def neighbours(exist: Float[Tensor, "B T"]) -> tuple[Float[Tensor, "B T T"], Float[Tensor, "B T T"]]:
    """L and R of right-padded rows, by the additive form; padding exists with probability zero."""
    left, right = (_FirstOnTheRight.apply(each) for each in (exist.flip(-1), exist))  # type: ignore[no-untyped-call]
    return left.flip(-1, -2), right


@region
def composed(
    rows: Composing,
    scorer: ScorerWeights,
    cell: CellWeights,
    kept: ElementMask | None,
    *,
    width: int,
    window: int,
    modulated: bool,
    activation: Activation,
    scoring: Activation,
) -> tuple[Float[Tensor, "M C"], Float[Tensor, " M"], Float[Tensor, " M"]]:
    """States, existential probabilities, and how much was composed into each position, after one step."""
    left, right = neighbours(_padded(rows.exist, rows.rows).squeeze(-1))
    beside, seen = _look(rows, left, right, width=width, window=window)
    chosen = _choose(_score(seen, rows.took, scorer, scoring), rows, left, right, modulated=modulated)
    took = _unpadded(_mixed(left, _padded(chosen, rows.rows)), rows.rows).squeeze(-1)
    compose = _by_lstm if cell.inner is None else _by_gates
    parents = compose(beside, rows.states, cell, kept, rows.place, activation)
    states = torch.addcmul(rows.states, took[:, None], parents - rows.states)
    return states, rows.exist * (1 - chosen), took


def _look(
    rows: Composing, left: Tensor, right: Tensor, *, width: int, window: int
) -> tuple[Float[Tensor, "M C"], Float[Tensor, "M W"]]:
    """The soft left neighbour's state, and the window of soft neighbours' states, left to right."""
    wide = _padded(rows.states, rows.rows)
    beside = left.to(wide.dtype) @ wide
    seen = wide[..., :width]
    before, behind, found = beside[..., :width], seen, [seen]
    for reach in range(window // 2):
        before = before if reach == 0 else left.to(before.dtype) @ before
        behind = right.to(behind.dtype) @ behind
        found = [before, *found, behind]
    together = torch.cat([each.to(seen.dtype) for each in found], -1)
    return _unpadded(beside, rows.rows), _unpadded(together, rows.rows)


def _score(window: Tensor, took: Tensor, weights: ScorerWeights, scoring: Activation) -> Float[Tensor, " M"]:
    if weights.taken is not None and weights.untaken is not None:
        share = took[:, None].to(window.dtype)
        window = torch.cat((window, share * weights.taken + (1 - share) * weights.untaken), -1)
    score = F.linear(scoring(F.linear(window, *weights.inner)), *weights.outer).squeeze(-1)
    return score.to(exact(score.dtype))


def _choose(
    score: Float[Tensor, " M"], rows: Composing, left: Tensor, right: Tensor, *, modulated: bool
) -> Float[Tensor, " M"]:
    """The modulated sigmoid, exponents shifted by the greatest score of the row."""
    greatest = _padded(score.detach(), rows.rows).squeeze(-1).amax(1).clamp(min=0)
    shift = greatest.index_select(0, rows.row)
    here = torch.where(rows.free, (score - shift).exp(), 0.0)
    terms = here + (-shift).exp() + 2 * EPSILON
    if modulated:
        wide = _padded(here, rows.rows)
        both = _mixed(left, wide) + _mixed(right, wide)
        terms = terms + _unpadded(both, rows.rows).squeeze(-1) + 2 * EPSILON
    return here / terms


def _by_gates(  # noqa: PLR0917 as tensors come
    left: Tensor, right: Tensor, cell: CellWeights, kept: ElementMask | None, place: Tensor, act: Activation
) -> Float[Tensor, "M C"]:
    assert cell.inner is not None
    assert cell.norm is not None
    hidden = act(F.linear(torch.cat((left, right), -1), *cell.inner))
    f1, f2, i, p = F.linear(drop(hidden, kept, place), *cell.outer).chunk(4, -1)
    return normed(f1.sigmoid() * left + f2.sigmoid() * right + i.sigmoid() * p, cell.norm)


def _by_lstm(  # noqa: PLR0917 as tensors come
    left: Tensor,
    right: Tensor,
    cell: CellWeights,
    kept: ElementMask | None,
    place: Tensor,
    act: Activation,
) -> Float[Tensor, "M C"]:
    (h1, c1), (h2, c2) = left.chunk(2, -1), right.chunk(2, -1)
    gates = drop(F.linear(torch.cat((h1, h2), -1), *cell.outer), kept, place)
    f1, f2, i, o, new = gates.chunk(5, -1)
    memory = f1.sigmoid() * c1 + f2.sigmoid() * c2 + i.sigmoid() * act(new)
    return torch.cat((o.sigmoid() * memory.tanh(), memory), -1)


def _padded(x: Shaped[Tensor, "M ..."], rows: RowPlaces) -> Float[Tensor, "B T D"]:
    require_alike(rows.mask.shape, rows.token.shape)
    return padded(x[:, None] if x.dim() == 1 else x, rows)


def _unpadded(x: Float[Tensor, "B T D"], rows: RowPlaces) -> Float[Tensor, "M D"]:
    return gather(x[:, :, None], rows)


def _mixed(weights: Float[Tensor, "B T T"], x: Float[Tensor, "B T 1"]) -> Float[Tensor, "B T 1"]:
    """Weights times numbers, never in 16 bits, as a matrix product would be under autocast."""
    return (weights * x.transpose(1, 2)).sum(-1, keepdim=True)
