"""The arithmetic of halting as functions of tensors: twins of `layers.halting`.

Legend: M packed tokens in B rows of T columns, U units (the tokens, or their rows), D the width of a state.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.regions.block import Affine
from trainables.regions.compiling import region
from trainables.regions.rows import RowPlaces, exact, require_alike


class Account(NamedTuple):
    """Accumulated probabilities, costs and steps of units (`layers.halting.HaltingState`)."""

    survival: Float[Tensor, " U"]
    spent: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]
    cap: Int[Tensor, " U"]
    active: Bool[Tensor, " U"]


class Step(NamedTuple):
    """Outcome of a decision (`layers.halting.Decision`)."""

    weight: Float[Tensor, " U"]
    keeps: Bool[Tensor, " U"] | None
    """None: every unit keeps the step."""
    crossed: Bool[Tensor, " U"] | None
    """None: those that have crossed the threshold have left."""
    survival: Float[Tensor, " U"]


class RowOf(NamedTuple):
    """Of tokens whose rows halt."""

    row: Int[Tensor, " M"]
    rows: RowPlaces


class _SpreadUnits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, row: Tensor, token: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(token, mask)
        return x.index_select(0, row)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        token, mask = ctx.saved_tensors
        wide = grads[0].index_select(0, token.flatten()).view(token.shape)
        return (wide * mask).sum(1), None, None, None


@region
def probability(
    features: Float[Tensor, "U D"], proposed: Float[Tensor, "U D"] | None, inner: Affine, outer: Affine
) -> Float[Tensor, " U"]:
    """sigmoid(W2 GELU(W1 [features] + b1) + b2); of transition features the `proposed` ones come second."""
    if proposed is not None:
        features = torch.cat((features, proposed), -1)
    hidden = F.gelu(F.linear(features, *inner))
    # A product with one column is a sum, which is fused with what is before and behind it.
    logit = (hidden.to(exact(hidden.dtype)) * outer.weight[0]).sum(-1) + outer.bias
    return logit.sigmoid()


@region
def decided(
    account: Account, p: Float[Tensor, " U"], *, threshold: float, undo: bool, all_active: bool
) -> Step:
    """As `layers.halting.decide`."""
    p = p.to(account.survival.dtype)
    survival = account.survival * (1 - p)
    crossed = 1 - survival >= threshold
    weight = account.survival * p
    if all_active:
        return Step(weight, None, crossed, survival)
    crossed = account.active & crossed
    return Step(weight, account.active & ~crossed if undo else account.active.clone(), crossed, survival)


@region
def stepped(
    states: Float[Tensor, "M D"],
    mixed: Float[Tensor, "M D"],
    step: Step,
    where: RowOf | None,
) -> Float[Tensor, "M D"]:
    """The mixture of states with that before the step, of units that keep it."""
    if where is not None:
        require_alike(where.row.shape, states.shape[:1])
    weight = step.weight if step.keeps is None else torch.where(step.keeps, step.weight, 0.0)
    return torch.addcmul(mixed, at_tokens(weight, where), states)


@region
def chosen(
    states: Float[Tensor, "M D"],
    others: Float[Tensor, "M D"],
    keeps: Bool[Tensor, " U"],
    where: RowOf | None,
) -> Float[Tensor, "M D"]:
    """New `states` of units that keep the step, and those they had of the others."""
    keeps = keeps if where is None else keeps.index_select(0, where.row)
    require_alike(keeps.shape, states.shape[:1])
    return torch.where(keeps[:, None], states, others)


@region
def account_after(
    account: Account, step: Step, *, delay: int
) -> tuple[Float[Tensor, " U"], Float[Tensor, " U"], Int[Tensor, " U"], Bool[Tensor, " U"]]:
    """Survival, spent, kept and active after the step, as `layers.halting.keep`."""
    spent = torch.addcmul(account.spent, step.weight, (account.kept + delay).to(step.weight.dtype))
    if step.keeps is None:
        kept = account.kept + 1
        active = kept < account.cap
        if step.crossed is not None:
            active = active & ~step.crossed
        return step.survival.clone(), spent, kept, active
    assert step.crossed is not None
    kept = account.kept + step.keeps
    survival = torch.where(step.keeps, step.survival, account.survival)
    active = account.active & ~step.crossed & (kept < account.cap)
    return survival, torch.where(step.keeps, spent, account.spent), kept, active


def at_tokens(value: Float[Tensor, " U"], where: RowOf | None) -> Float[Tensor, "M 1"]:
    """A value of each unit as a column over its tokens."""
    if where is None:
        return value[:, None]
    made: Tensor = _SpreadUnits.apply(value, where.row, where.rows.token, where.rows.mask)  # type: ignore[no-untyped-call]
    return made[:, None]
