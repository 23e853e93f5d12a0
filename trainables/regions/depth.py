"""What recurrence over depth does between two waits of the host, as functions of tensors.

Each is compiled as one: what several parts of a step read is then read once, and gradients that meet in a
tensor are added where they are made. Units leave the batch in every step, if only in name: a step in which
none does is the same to the compiler, which so meets nothing new when the first ones halt.

Legend: M packed tokens in B rows of T columns, U units (the tokens, or their rows), of which some stay and
others leave; L packed keys before a step and K after it, H heads of width E, D the width of a state.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from trainables.regions.block import (
    Affine,
    LayerParts,
    keys_of_normed,
    layer,
    layer_of_normed,
    normed,
)
from trainables.regions.compiling import region
from trainables.regions.halting import (
    Account,
    RowOf,
    Step,
    account_after,
    at_tokens,
    decided,
    probability,
    stepped,
)
from trainables.regions.rows import means


class Halves(NamedTuple):
    """Tokens, or units, that stay in the batch, and those that leave it."""

    staying: Int[Tensor, " K"]
    leaving: Int[Tensor, " L"]
    """Some that stay may stand here too, for what leaves to be no case of its own."""
    back: Int[Tensor, " M"]
    """Of each of all, where it is among those that stay, followed by those that leave."""


class Exits(NamedTuple):
    """Which units leave."""

    tokens: Halves
    units: Halves | None
    """None: these are the tokens."""
    rows: RowOf | None
    """Of all tokens, where rows halt."""

    @property
    def of_units(self) -> Halves:
        """Whatever they are."""
        return self.tokens if self.units is None else self.units


class Numbers(NamedTuple):
    """Of tokens, what has no gradient."""

    place: Int[Tensor, " M"]
    rotated: Int[Tensor, " M"]
    reach: Int[Tensor, " M"] | None
    position: Int[Tensor, " M"] | None

    def at(self, tokens: Int[Tensor, " K"]) -> "Numbers":
        """Of some."""
        found = (None if each is None else each.index_select(0, tokens) for each in self)
        return Numbers(*found)  # type: ignore[arg-type]


class Present(NamedTuple):
    """Units in the batch, between two steps."""

    states: Float[Tensor, "M D"]
    mixed: Float[Tensor, "M D"]
    account: Account
    numbers: Numbers


class Proposed(NamedTuple):
    """What the next layer made, and what units halt by, where those are not its states."""

    states: Float[Tensor, "M D"]
    features: Float[Tensor, "U D"] | None


class Deciding(NamedTuple):
    """By what it is decided which units halt."""

    features: Float[Tensor, "U D"] | None
    """Of the last kept states; None: these."""
    inner: Affine
    outer: Affine


class Anew(NamedTuple):
    """How keys and values are made, and what becomes of those that are cached; -1 is no key."""

    norm: Affine
    weight: Tensor
    before: Float[Tensor, "L 2 H E"] | None
    """Those that are cached."""
    of_made: Int[Tensor, " K"]
    """Which of those just made each key is after the step."""
    of_before: Int[Tensor, " K"] | None
    made_to: Int[Tensor, " M"]
    """Which key each of those just made is."""
    before_to: Int[Tensor, " L"] | None


class Ended(NamedTuple):
    """What units leave behind (`recurrence.depth_units.EndedUnits`)."""

    states: Float[Tensor, "M D"]
    ponder: Float[Tensor, " U"]
    kept: Int[Tensor, " U"]


class Order(NamedTuple):
    """Where each of a full batch is among those that have left, and the reverse; -1 is nowhere."""

    out: Int[Tensor, " K"]
    back: Int[Tensor, " L"]


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
def onwards(
    present: Present,
    step: Step,
    exits: Exits,
    anew: Anew,
    parts: LayerParts,
    *,
    mixes: bool,
    how: tuple[int, int],
) -> tuple[Present, Ended, Float[Tensor, "K 2 H E"]]:
    """Units, which are tokens, leave; the others take the `step` that was decided on; and all keys.

    Keys are made of the states before it, of those that leave too, or of mixtures if it `mixes`. `parts` are
    those of the layer on the tokens that stay, but for the numbers of tokens. `how`: heads, and the delay.
    """
    present = _before(present, step)
    mixture, (heads, delay) = _mixture(present, None), how
    staying, ended = _parted(present, mixture, exits)
    before = mixture if mixes else present.states
    z = normed(torch.cat((before, staying.states)), anew.norm)
    of_keys, z = torch.split(z, [before.shape[0], staying.states.shape[0]])
    parts = _placed(parts, staying.numbers)
    keys = _keys_anew(of_keys, anew, present.numbers, parts, heads)
    states = layer_of_normed(staying.states, z, _seeing(parts, keys), heads=heads)
    found, _, _ = _moved(staying, states, _of_staying(step, exits.of_units), None, delay)
    return found, ended, keys


@region
def proposed(
    present: Present,
    deciding: Deciding | None,
    anew: Anew | None,
    parts: LayerParts,
    counts: Int[Tensor, " B"] | None,
    *,
    mixes: bool,
    heads: int,
    threshold: float,
) -> tuple[Proposed, Step | None, Float[Tensor, "K 2 H E"] | None]:
    """States of units one layer on, their means over rows of as many tokens as `counts`, if these are given;
    what is decided by that; and all keys, if these are made, of units that are tokens."""
    keys = None
    if anew is None:
        states = layer(present.states, *parts, heads=heads)
    else:
        before = _mixture(present, None) if mixes else present.states
        of_keys, z = normed(torch.stack((before, present.states)), anew.norm).unbind(0)
        keys = _keys_anew(of_keys, anew, present.numbers, parts, heads)
        states = layer_of_normed(present.states, z, _seeing(parts, keys), heads=heads)
    made = Proposed(states, None if counts is None else means(states, parts.where.rows, counts))
    if deciding is None:
        return made, None, keys
    step = decision(
        present.states if deciding.features is None else deciding.features,
        states if made.features is None else made.features,
        deciding.inner,
        deciding.outer,
        present.account,
        threshold=threshold,
        undo=True,
        all_active=True,
    )
    return made, step, keys


@region
def parted(present: Present, step: Step, exits: Exits) -> tuple[Present, Step, Ended]:
    """Units leave; what was decided for the others."""
    present = _before(present, step)
    staying, ended = _parted(present, _mixture(present, exits.rows), exits)
    return staying, _of_staying(step, exits.of_units), ended


@region
def after(
    present: Present, states: Float[Tensor, "M D"], step: Step, rows: RowOf | None, *, delay: int
) -> Present:
    """After a `step` to `states`."""
    return _moved(present, states, step, rows, delay)[0]


@region
def settled(
    present: Present, step: Step, made: Proposed, exits: Exits, *, delay: int
) -> tuple[Present, Float[Tensor, "U D"] | None, Ended]:
    """After a `step` to what was proposed, which those that have crossed the threshold do not take.

    These leave, and those that are at their caps. In the place of their states, of means of the others.
    """
    assert step.crossed is not None
    present, crossed, units = _before(present, step), step.crossed, exits.of_units
    found, mixture, ponder = _moved(present, made.states, step._replace(crossed=None), exits.rows, delay)
    at_token = crossed if exits.rows is None else crossed.index_select(0, exits.rows.row)
    mixture = torch.where(at_token[:, None], _mixture(present, exits.rows), mixture)
    before = present.account
    ponder = torch.where(crossed, before.spent + before.survival * before.kept, ponder)
    kept = torch.where(crossed, before.kept, found.account.kept)
    ended = Ended(
        halved(mixture, exits.tokens)[1], halved(ponder, units)[1], kept.index_select(0, units.leaving)
    )
    features = None if made.features is None else halved(made.features, units)[0]
    return _staying(found, exits), features, ended


@region
def ended(present: Present, rows: RowOf | None) -> Ended:
    """What all units leave behind."""
    account = present.account
    return Ended(
        _mixture(present, rows), account.spent + account.survival * account.kept, account.kept.clone()
    )


@region
def in_order(found: Ended, tokens: Order, units: Order) -> Ended:
    """Of all units in the order of the full batch, given those that have left one after the other."""
    states: Tensor = _InOrder.apply(found.states, *tokens)  # type: ignore[no-untyped-call]
    ponder: Tensor = _InOrder.apply(found.ponder, *units)  # type: ignore[no-untyped-call]
    return Ended(states, ponder, found.kept.index_select(0, units.out))


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


class _InOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return _at_any(grads[0], back), None, None


def halved(x: Shaped[Tensor, "M ..."], halves: Halves) -> tuple[Tensor, Tensor]:
    """Those that stay, and those that leave."""
    found: tuple[Tensor, Tensor] = _Halved.apply(x, *halves)  # type: ignore[no-untyped-call]
    return found


def _before(present: Present, step: Step) -> Present:
    """The same, its survival given by the `step`: so it has no gradient of two regions, to be added later."""
    return present._replace(account=present.account._replace(survival=step.weight + step.survival))


def _mixture(present: Present, rows: RowOf | None) -> Float[Tensor, "M D"]:
    return torch.addcmul(present.mixed, at_tokens(present.account.survival, rows), present.states)


def _staying(present: Present, exits: Exits) -> Present:
    account, tokens, units = present.account, exits.tokens, exits.of_units
    kept, cap = (each.index_select(0, units.staying) for each in (account.kept, account.cap))
    survival, spent = (halved(each, units)[0] for each in (account.survival, account.spent))
    states, mixed = (halved(each, tokens)[0] for each in (present.states, present.mixed))
    account = Account(survival, spent, kept, cap, kept < cap)
    return Present(states, mixed, account, present.numbers.at(tokens.staying))


def _parted(present: Present, mixture: Float[Tensor, "M D"], exits: Exits) -> tuple[Present, Ended]:
    """Units that stay, and what those leave behind that do not take the step that was decided on."""
    account, units = present.account, exits.of_units
    ponder = account.spent + account.survival * account.kept
    ended = Ended(
        halved(mixture, exits.tokens)[1],
        halved(ponder, units)[1],
        account.kept.index_select(0, units.leaving),
    )
    return _staying(present, exits), ended


def _of_staying(step: Step, units: Halves) -> Step:
    return Step(halved(step.weight, units)[0], None, None, halved(step.survival, units)[0])


def _moved(
    present: Present, states: Float[Tensor, "M D"], step: Step, rows: RowOf | None, delay: int
) -> tuple[Present, Float[Tensor, "M D"], Float[Tensor, " U"]]:
    """After a step that all units take, and what each would leave behind then."""
    mixed, account = stepped(present.states, present.mixed, step, rows), present.account
    survival, spent, kept, active = account_after(account, step, delay=delay)
    found = Present(states, mixed, Account(survival, spent, kept, account.cap, active), present.numbers)
    return found, _mixture(found, rows), spent + survival * kept


def _placed(parts: LayerParts, numbers: Numbers) -> LayerParts:
    """With such numbers of tokens."""
    where = parts.where._replace(place=numbers.place, reach=numbers.reach)
    if where.turning is not None:
        where = where._replace(turning=where.turning._replace(position=numbers.rotated))
    return parts._replace(where=where)


def _seeing(parts: LayerParts, keys: Float[Tensor, "K 2 H E"]) -> LayerParts:
    """Tokens that attend to such keys."""
    assert parts.where.seen is not None
    return parts._replace(where=parts.where._replace(seen=parts.where.seen._replace(both=keys)))


def _keys_anew(
    z: Float[Tensor, "M D"], anew: Anew, numbers: Numbers, parts: LayerParts, heads: int
) -> Float[Tensor, "K 2 H E"]:
    """Keys and values after a step, of tokens with what is normed."""
    turning = parts.where.turning
    turning = None if turning is None else turning._replace(position=numbers.rotated)
    made = keys_of_normed(z, anew.weight, turning, heads=heads)
    found: Tensor = _Renewed.apply(made, anew.before, anew[3:])  # type: ignore[no-untyped-call]
    return found


def _at(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index.clamp(min=0))


def _at_any(x: Tensor, index: Tensor) -> Tensor:
    """Zero where there is none."""
    there = (index >= 0).view(-1, *(1 for _ in x.shape[1:]))
    return torch.where(there, _at(x, index), 0.0)
