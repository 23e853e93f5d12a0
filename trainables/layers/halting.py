"""Halting of units: active units, the probability of each state to be the last, and the ponder cost.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 1 (tokens) and
Alg. 3 (sequences), Eq. 8. A unit is a token or a sequence that halts as one. With conditional halting
probability p_j on state j, state j is the last with a_j = p_j * prod_{i<j} (1 - p_i), and

    C_l = sum_{j<l} a_j = 1 - prod_{j<l} (1 - p_j)          s_l = sum_{j<l} a_j h_j + (1 - C_l) h_l.

As printed, the test of step l uses a_{l-1}, which is computed only inside that step. Two rules can be run:

`undo`    the step in which C_l reaches the threshold is undone: s_{l-1} is the result (published runs)
`prefix`  the test precedes the step, so the step that reaches the threshold is kept: s_l is the result

They differ by at most (1 - threshold) |h_l - h_{l-1}|. The sums begin at state `origin`: 0 (the embeddings,
as in the published runs) or 1 (as an earlier version of the paper prints). A unit that keeps K steps costs
sum_{j<K} a_j (j + delay) + (1 - C_K) K layers, including the remaining mass. The cost of halting on state j
is the number of layers that computed it, plus the `delay` until the decision: 1 in the published runs, 0
where a decision precedes the next layer (Tan et al., Sparse Universal Transformer, Eq. 4).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.host import Function, replace_fields
from trainables.layers.packing import Packing, SplitInTwo, take
from trainables.types import sum_dtype

Rule = Literal["undo", "prefix"]


@dataclass(frozen=True)
class HaltingState:
    """Accumulated halting probabilities, costs and steps of U units.

    All sums have at least 32 bits, independently of the dtype of the states.
    """

    survival: Float[Tensor, " U"]
    """1 - C, the survival probability: that none of the kept states so far was the last."""
    spent: Float[Tensor, " U"]
    """sum a_j (j + delay) over the kept steps."""
    num_kept: Int[Tensor, " U"] | int
    """K: number of kept steps; an int if it is the same for all units."""
    computed: int
    """Number of steps run on every unit, including an undone one."""
    cap: Int[Tensor, " U"]
    """Maximum number of steps that each unit may keep."""
    active: Bool[Tensor, " U"]
    delay: int = 1
    """Number of layers from a state to the decision to halt on it."""

    @classmethod
    def begin(
        cls, cap: Int[Tensor, " U"], dtype: torch.dtype, delay: int = 1, *, all_keep: bool = False
    ) -> "HaltingState":
        """Return the state before the first step: all units active, no cost.

        With `all_keep`, halted units are removed from the batch, so all units in it keep every step.
        """
        ones = torch.ones(cap.shape, dtype=sum_dtype(dtype), device=cap.device)
        kept = 0 if all_keep else torch.zeros_like(cap)
        return cls(ones, torch.zeros_like(ones), kept, 0, cap, cap > 0, delay)

    def select(self, units: Int[Tensor, " K"]) -> "HaltingState":
        """Return the halting state of the units at `units`."""
        return HaltingState(
            take(self.survival, units),
            take(self.spent, units),
            self.num_kept if isinstance(self.num_kept, int) else self.num_kept.index_select(0, units),
            self.computed,
            self.cap.index_select(0, units),
            self.active.index_select(0, units),
            self.delay,
        )

    def part(self, split: SplitInTwo) -> "tuple[HaltingState, HaltingState]":
        """Split the halting state in two, one for each part of `split`."""
        kept = (self.num_kept, self.num_kept) if isinstance(self.num_kept, int) else split.of(self.num_kept)
        floats, integers = (self.survival, self.spent), (self.cap, self.active)
        columns = zip(*map(split.of, floats), kept, *map(split.of, integers), strict=True)
        first, second = (
            replace_fields(self, survival=survival, spent=spent, num_kept=kept, cap=cap, active=active)
            for survival, spent, kept, cap, active in columns
        )
        return first, second

    def count_run(self) -> "HaltingState":
        """Return the state with one more computed step counted for every unit."""
        return replace_fields(self, computed=self.computed + 1)

    @property
    def ponder(self) -> Float[Tensor, " U"]:
        """Cost so far in layers, including the remaining mass."""
        return self.spent + self.survival * self.num_kept


@dataclass(frozen=True)
class Decision:
    """Outcome of one halting decision for every unit."""

    p: Float[Tensor, " U"]
    """Probability of halting on the state before this step."""
    keeps: Bool[Tensor, " U"]
    """Units that keep this step."""
    goes_on: Bool[Tensor, " U"] | None
    """Units whose C_l has not reached the threshold; None if all other units were removed."""

    def of_active(self, units: Int[Tensor, " K"] | None, keeps: Bool[Tensor, " K"]) -> "Decision":
        """Return the outcome for the units at `units` (None: all); none of them has reached the threshold."""
        return Decision(self.p if units is None else take(self.p, units), keeps, None)


def decide(
    halting: HaltingState, p: Float[Tensor, " U"], threshold: float, rule: Rule, *, all_active: bool = False
) -> Decision:
    """Decide for every unit whether it keeps this step and whether it continues.

    Args:
        halting: State before the step.
        p: Probability of halting on the state before the step, for each unit.
        threshold: Halting threshold of C_l.
        rule: Rule for the step that reaches the threshold.
        all_active: Whether no unit has halted yet. Then units that reach the threshold and undo the step must
            be removed before the step is kept, because `keeps` does not exclude them.
    """
    p = p.to(halting.survival.dtype)
    with torch.no_grad():
        survival = halting.survival * (1 - p)
        goes_on = ~(survival <= _most_surviving(threshold, survival.dtype))
        if not all_active:
            goes_on = halting.active & goes_on
    return Decision(p, goes_on if rule == "undo" and not all_active else halting.active, goes_on)


@lru_cache(maxsize=64)
def _most_surviving(threshold: float, dtype: torch.dtype) -> float:
    """Return the greatest survival probability s for which 1 - s rounds to at least `threshold` in `dtype`.

    It is computed by bisection over all numbers from 0 to 1, whose bit patterns have the same order.
    """
    real, bits = ("f4", "i4") if dtype == torch.float32 else ("f8", "i8")
    ones, lowest = np.ones(1, real), 0
    highest, limit = int(ones.view(bits)[0]), ones * threshold
    while highest - lowest > 1:
        middle = (lowest + highest) // 2
        if ones - np.array([middle], bits).view(real) >= limit:
            lowest = middle
        else:
            highest = middle
    return float(np.array([lowest], bits).view(real)[0])


@dataclass(frozen=True)
class States:
    """States of M tokens before and after a step, and the mixture of the earlier states."""

    before: Float[Tensor, "M D"]
    after: Float[Tensor, "M D"]
    mixed: Float[Tensor, "M D"]
    packing: Packing | None
    """Rows whose tokens halt together; None if each token is a unit."""


class _KeepConstants(NamedTuple):
    """Arguments of a kept step that have no gradient."""

    keeps: Bool[Tensor, " U"] | None
    """Units that keep the step; None if all do."""
    cost: Float[Tensor, " #U"]
    """Cost in layers of halting on the state before the step."""
    packing: Packing | None

    def at_tokens(self, value: Shaped[Tensor, " U"]) -> Shaped[Tensor, "M 1"]:
        return (value if self.packing is None else value.index_select(0, self.packing.row))[:, None]


class _Keep(Function):
    """Update of sums and states after a step; the backward pass launches a third of autograd's kernels."""

    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        survival: Tensor,
        probability_used: Tensor,
        p: Tensor,
        mixed: Tensor,
        before: Tensor,
        new_states: Tensor,
        constants: _KeepConstants,
    ) -> tuple[Tensor, ...]:
        weight, survives = survival * p, survival * (1 - p)
        if constants.keeps is not None:
            weight *= constants.keeps
            survives = torch.where(constants.keeps, survives, survival)
            new_states = torch.where(constants.at_tokens(constants.keeps), new_states, before)
        ctx.save_for_backward(survival, p, weight, before, constants.keeps, constants.cost)
        ctx.packing = constants.packing
        costs = torch.addcmul(probability_used, weight, constants.cost)
        mixture = torch.addcmul(mixed, constants.at_tokens(weight), before)
        return (
            (survives, costs, mixture) if constants.keeps is None else (survives, costs, mixture, new_states)
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        survival, p, weight, old_states, keeps, cost = ctx.saved_tensors
        survives, costs, mixture, *grad_after = grads
        constants = _KeepConstants(keeps, cost, ctx.packing)
        by_weight = (mixture * old_states).sum(-1)
        if constants.packing is not None:
            by_weight = constants.packing.pad(by_weight).sum(1)
        # Gradient with respect to the mass that halts here instead of surviving.
        grad_survival = torch.addcmul(by_weight - survives, costs, cost)
        weight_at_tokens, by_after = constants.at_tokens(weight), None
        if keeps is None:
            by_before = weight_at_tokens * mixture
        else:
            grad_survival *= keeps
            by_after = grad_after[0] * constants.at_tokens(keeps)
            by_before = torch.addcmul(grad_after[0] - by_after, weight_at_tokens, mixture)
        return (
            torch.addcmul(survives, grad_survival, p),
            costs,
            grad_survival * survival,
            mixture,
            by_before,
            by_after,
            None,
        )


def keep(
    halting: HaltingState, decision: Decision, states: States, *, all_keep: bool = False, capped: bool = True
) -> tuple[HaltingState, Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """Return the halting state, the mixture and the states after a step.

    Args:
        halting: Halting state before the step.
        decision: Outcome of the halting decision of the step.
        states: States before and after the step.
        all_keep: Whether every unit keeps the step.
        capped: Whether some unit may reach its cap by this step.
    """
    cost = halting.num_kept + halting.delay
    dtype = halting.survival.dtype
    factor = _number(cost, dtype, decision.p.device) if isinstance(cost, int) else cost.to(dtype)
    constants = _KeepConstants(None if all_keep else decision.keeps, factor, states.packing)
    survival, spent, mixed, *after = _Keep.run(
        halting.survival, halting.spent, decision.p, states.mixed, states.before, states.after, constants
    )
    if all_keep:
        active = _active_after(halting, decision, capped=capped)
        number = halting.num_kept + 1
    else:
        number = halting.num_kept + decision.keeps
        active = _going_on(decision) & (number < halting.cap)
    books = replace_fields(halting, survival=survival, spent=spent, num_kept=number, active=active)
    return books, mixed, after[0] if after else states.after


@cached_constants(maxsize=256)
def _number(value: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " 1"]:
    return torch.full((1,), value, dtype=dtype, device=device)


def _active_after(halting: HaltingState, decision: Decision, *, capped: bool) -> Bool[Tensor, " U"]:
    """Return which units are active after a step that every unit has kept."""
    active = halting.active
    if capped:
        active = halting.num_kept + 1 < halting.cap
    if decision.goes_on is None:
        return active
    return active.logical_and(decision.goes_on) if capped else decision.goes_on


def _going_on(decision: Decision) -> Bool[Tensor, " U"]:
    assert decision.goes_on is not None, "units that have crossed the threshold leave before all others keep"
    return decision.goes_on
