"""What recurrence over depth does between two waits of the host, as functions of tensors.

Each is compiled as one: what several parts of a step read is then read once, and gradients that meet in a
tensor are added where they are made.

Legend: M packed tokens in B rows of T columns, U units (the tokens, or their rows), of which some stay and
others leave; L packed keys before a step and K after it, H heads of width E, D the width of a state.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.regions.block import (
    Affine,
    LayerParts,
    Mixing,
    keys_beside_values,
    layer,
)
from trainables.regions.compiling import region
from trainables.regions.halting import (
    Account,
    RowOf,
    Step,
    account_after,
    at_tokens,
    chosen,
    decided,
    probability,
    stepped,
)
from trainables.regions.heads import Turning


class Halves(NamedTuple):
    """Tokens, or units, that stay in the batch, and those that leave it."""

    staying: Int[Tensor, " K"]
    leaving: Int[Tensor, " L"]
    back: Int[Tensor, " M"]
    """Of each of all, where it is among those that stay, followed by those that leave."""


class Present(NamedTuple):
    """Units in the batch, between two steps."""

    states: Float[Tensor, "M D"]
    mixed: Float[Tensor, "M D"]
    account: Account
    features: Float[Tensor, "U D"] | None
    """What they halt by, where those are not their states, and it is wanted."""


class Numbers(NamedTuple):
    """Of tokens, what has no gradient."""

    place: Int[Tensor, " M"]
    rotated: Int[Tensor, " M"]
    reach: Int[Tensor, " M"] | None
    position: Int[Tensor, " M"] | None


class Proposed(NamedTuple):
    """What the next layer made, and what units halt by, where those are not its states."""

    states: Float[Tensor, "M D"]
    features: Float[Tensor, "U D"] | None


class Making(NamedTuple):
    """How keys and values are made of states."""

    norm: Affine
    weight: Tensor
    turning: Turning | None


class Renewing(NamedTuple):
    """Which of the keys after a step were just made, and which were cached before; -1 is none."""

    before: Float[Tensor, "L 2 H E"] | None
    """None: no key is one of these."""
    of_made: Int[Tensor, " K"]
    of_before: Int[Tensor, " K"] | None
    made_to: Int[Tensor, " M"]
    """Which key after the step each is that was just made."""
    before_to: Int[Tensor, " L"] | None


class Anew(NamedTuple):
    """Keys and values that are made in a region, and what becomes of those that are cached."""

    making: Making
    renewing: Renewing | None
    """None: all are made anew."""


class Outcome(NamedTuple):
    """What was decided for units, and what was proposed for them, if that came first."""

    step: Step
    proposed: Proposed | None


class Cut(NamedTuple):
    """Which units leave."""

    tokens: Halves
    units: Halves | None
    """None: these are the tokens."""
    rows: RowOf | None
    """Of all tokens, where rows halt."""


class Ended(NamedTuple):
    """What units leave behind (`recurrence.depth_units.EndedUnits`)."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]


class Parted(NamedTuple):
    """Units that stay, what was decided and proposed for them, what the others leave behind; all keys."""

    present: Present
    numbers: Numbers
    outcome: Outcome | None
    ended: Ended
    keys: Float[Tensor, "K 2 H E"] | None


class After(NamedTuple):
    """Units after a step."""

    states: Float[Tensor, "M D"] | None
    """None: those that the layer made."""
    mixed: Float[Tensor, "M D"]
    account: tuple[Float[Tensor, " U"], Float[Tensor, " U"], Int[Tensor, " U"], Bool[Tensor, " U"]]
    """Survival, spent, kept and active."""


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, staying: Tensor, leaving: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(back)
        return x.index_select(0, staying), x.index_select(0, leaving)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        return torch.cat(grads).index_select(0, back), None, None, None


class _Renewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Tensor, before: Tensor | None, tables: tuple[Tensor | None, ...]) -> Tensor:
        of_made, of_before, made_to, before_to = tables
        assert of_made is not None
        ctx.save_for_backward(made_to, before_to)
        found = _at(made, of_made)
        if before is None or of_before is None:
            return found
        return torch.where((of_made >= 0)[:, None, None, None], found, _at(before, of_before))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        made_to, before_to = ctx.saved_tensors
        return _at_any(grads[0], made_to), None if before_to is None else _at_any(grads[0], before_to), None


@region
def decision(
    features: Float[Tensor, "U D"],
    proposed: Float[Tensor, "U D"] | None,
    inner: Affine,
    outer: Affine,
    account: Account,
    *,
    threshold: float,
    undo: bool,
    all_active: bool,
) -> Step:
    """What is decided by the halting probability of `features`."""
    p = probability(features, proposed, inner, outer)
    return decided(account, p, threshold=threshold, undo=undo, all_active=all_active)


@region
def parted(
    present: Present,
    numbers: Numbers,
    outcome: Outcome | None,
    anew: Anew | None,
    cut: Cut,
    *,
    heads: int,
    mixes: bool,
) -> Parted:
    """Those that leave are taken out of the batch. Keys are made of all that were in it, if they are made."""
    (states, mixed, account, features), (tokens, units, rows) = present, cut
    units = tokens if units is None else units
    (states, left), (mixed, left_mixed) = (_halved(each, tokens) for each in (states, mixed))
    survival, spent = (_halved(each, units) for each in (account.survival, account.spent))
    share = survival if rows is None else _halved(at_tokens(account.survival, rows)[:, 0], tokens)
    kept, kept_by_left = (account.kept.index_select(0, each) for each in units[:2])
    cap = account.cap.index_select(0, units.staying)
    features = None if features is None else _halved(features, units)[0]
    place, rotated, *others = numbers
    return Parted(
        Present(states, mixed, Account(survival[0], spent[0], kept, cap, kept < cap), features),
        Numbers(
            place.index_select(0, tokens.staying),
            rotated.index_select(0, tokens.staying),
            *(None if each is None else each.index_select(0, tokens.staying) for each in others),
        ),
        None if outcome is None else _of_staying(outcome, tokens, units),
        Ended(
            torch.addcmul(left_mixed, share[1][:, None], left),
            spent[1] + survival[1] * kept_by_left,
            kept_by_left,
        ),
        None if anew is None else keys_anew(present, anew, heads, mixes=mixes),
    )


@region
def ended(present: Present, rows: RowOf | None) -> Ended:
    """What all units leave behind."""
    account = present.account
    mixture = torch.addcmul(present.mixed, at_tokens(account.survival, rows), present.states)
    return Ended(mixture, account.spent + account.survival * account.kept, account.kept.clone())


@region
def onwards(
    present: Present,
    step: Step | None,
    anew: Anew | None,
    parts: LayerParts,
    *,
    heads: int,
    mixes: bool,
    delay: int,
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "K 2 H E"] | None, After | None]:
    """States one layer on; keys, if these are made; and what is after the step, if one was decided on.

    Units are tokens.
    """
    keys, where = None, parts.where
    if anew is not None:
        keys = keys_anew(present, anew, heads, mixes=mixes)
        assert where.seen is not None
        where = where._replace(seen=where.seen._replace(both=keys))
    states = layer(present.states, parts.weights, where, parts.dropped, heads=heads)
    return states, keys, None if step is None else after(present, None, step, None, delay=delay)


@region
def after(
    present: Present, states: Float[Tensor, "M D"] | None, step: Step, rows: RowOf | None, *, delay: int
) -> After:
    """After a step to `states`, which not all units keep, if these are given."""
    found = None
    if states is not None:
        assert step.keeps is not None
        found = chosen(states, present.states, step.keeps, rows)
    mixed = stepped(present.states, present.mixed, step, rows)
    return After(found, mixed, account_after(present.account, step, delay=delay))


def keys_anew(present: Present, anew: Anew, heads: int, *, mixes: bool) -> Float[Tensor, "K 2 H E"]:
    """Keys and values of tokens that halt for themselves, of mixtures of their states if it `mixes`."""
    (norm, weight, turning), renewing = anew
    mixing = Mixing(present.mixed, present.account.survival[:, None]) if mixes else None
    made = keys_beside_values(present.states, norm, weight, turning, mixing, heads=heads)
    if renewing is None:
        return made
    found: Tensor = _Renewed.apply(made, renewing.before, renewing[1:])  # type: ignore[no-untyped-call]
    return found


def _halved(x: Tensor, halves: Halves) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _Halved.apply(x, *halves)  # type: ignore[no-untyped-call]
    return found


def _of_staying(outcome: Outcome, tokens: Halves, units: Halves) -> Outcome:
    (weight, _, _, survival), proposed = outcome
    step = Step(_halved(weight, units)[0], None, None, _halved(survival, units)[0])
    if proposed is None:
        return Outcome(step, None)
    features = None if proposed.features is None else _halved(proposed.features, units)[0]
    return Outcome(step, Proposed(_halved(proposed.states, tokens)[0], features))


def _at(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index.clamp(min=0))


def _at_any(x: Tensor, index: Tensor) -> Tensor:
    """Zero where there is none."""
    return torch.where((index >= 0)[:, None, None, None], _at(x, index), 0.0)
