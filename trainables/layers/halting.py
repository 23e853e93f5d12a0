"""Halting of units: which are active, the probability of each state to be the last, and the ponder cost.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 1 (tokens) and
Alg. 3 (sequences), Eq. 8. A unit is what halts as one: a token or a sequence. With conditional halting
probability p_j on state j, state j is the last with a_j = p_j * prod_{i<j} (1 - p_i), and

    C_l = sum_{j<l} a_j = 1 - prod_{j<l} (1 - p_j)          s_l = sum_{j<l} a_j h_j + (1 - C_l) h_l.

As printed, the test of step l uses a_{l-1}, known only inside that step. Two readings can be run:

`undo`    the step in which C_l reaches the threshold is taken back: s_{l-1} is the result (published runs)
`prefix`  the test precedes the step, so the step that reaches the threshold is kept: s_l is the result

They differ by at most (1 - threshold) |h_l - h_{l-1}|. The sums begin at state `origin`: 0 (the embeddings,
as in the published runs) or 1 (as an earlier version of the paper prints). A unit that keeps K steps costs
sum_{j<K} a_j (j + delay) + (1 - C_K) K layers, the mass that is left over included. To halt on state j then
costs the layers that made it and the `delay` more until that is decided: 1 in the published runs, 0 where a
decision comes before the next layer (Tan et al., Sparse Universal Transformer, Eq. 4).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.host import changed
from trainables.layers.packing import InTwo, take
from trainables.types import sum_dtype

Rule = Literal["undo", "prefix"]


@dataclass(frozen=True)
class HaltingState:
    """Accumulated halting probabilities, costs and steps of U units. All sums have 32 bits or more, whatever
    the dtype of the states."""

    survival: Float[Tensor, " U"]
    """1 - C, the survival probability: that no kept state so far was the last."""
    spent: Float[Tensor, " U"]
    """sum a_j (j + delay) over the kept steps."""
    kept: Int[Tensor, " U"] | int
    """K: steps kept; a number where all units have kept as many."""
    computed: int
    """Steps run on every unit, the undone one included."""
    cap: Int[Tensor, " U"]
    """Most steps a unit may keep."""
    active: Bool[Tensor, " U"]
    delay: int = 1
    """Layers from a state to the decision to halt on it."""

    @classmethod
    def begin(
        cls, cap: Int[Tensor, " U"], dtype: torch.dtype, delay: int = 1, *, alike: bool = False
    ) -> "HaltingState":
        """All units active, nothing spent; `alike`: every step is kept by all units that are still there."""
        one = torch.ones(cap.shape, dtype=sum_dtype(dtype), device=cap.device)
        kept = 0 if alike else torch.zeros_like(cap)
        return cls(one, torch.zeros_like(one), kept, 0, cap, cap > 0, delay)

    def select(self, units: Int[Tensor, " K"]) -> "HaltingState":
        """The state of some units."""
        return HaltingState(
            take(self.survival, units),
            take(self.spent, units),
            self.kept if isinstance(self.kept, int) else self.kept.index_select(0, units),
            self.computed,
            self.cap.index_select(0, units),
            self.active.index_select(0, units),
            self.delay,
        )

    def part(self, cut: InTwo) -> "tuple[HaltingState, HaltingState]":
        """The states of both parts of a `cut` through the units."""
        kept = (self.kept, self.kept) if isinstance(self.kept, int) else cut.of(self.kept)
        floats, others = (self.survival, self.spent), (self.cap, self.active)
        columns = zip(*map(cut.of, floats), kept, *map(cut.of, others), strict=True)
        one, other = (
            changed(self, survival=survival, spent=spent, kept=kept, cap=cap, active=active)
            for survival, spent, kept, cap, active in columns
        )
        return one, other

    def count_run(self) -> "HaltingState":
        """One more step was run on every unit."""
        return changed(self, computed=self.computed + 1)

    @property
    def ponder(self) -> Float[Tensor, " U"]:
        """Cost so far in layers, leftover mass included."""
        return self.spent + self.survival * self.kept


@dataclass(frozen=True)
class Decision:
    """Outcome of one halting decision for every unit."""

    weight: Float[Tensor, " U"]
    """a_{l-1}: probability that the state before this step is the last."""
    keeps: Bool[Tensor, " U"]
    """Units that keep this step."""
    crossed: Bool[Tensor, " U"] | None
    """Units whose C_l has reached the threshold; None where these have left."""
    survival: Float[Tensor, " U"]

    def of_staying(self, units: Int[Tensor, " K"] | None, keeps: Bool[Tensor, " K"]) -> "Decision":
        """The outcome for `units`, all if not given, which are those that have not crossed the threshold."""
        weight, survival = (
            each if units is None else take(each, units) for each in (self.weight, self.survival)
        )
        return Decision(weight, keeps, None, survival)


def decide(
    halting: HaltingState, p: Float[Tensor, " U"], threshold: float, rule: Rule, *, all_active: bool = False
) -> Decision:
    """Decide this step for every unit, given the probability `p` of halting on the state before it.

    `all_active`: no unit has halted yet. Then those that cross the threshold must leave before the step is
    kept, where they undo it; `keeps` is not told apart for them.
    """
    p = p.to(halting.survival.dtype)
    survival = halting.survival * (1 - p)
    crossed = survival <= _most_surviving(threshold, survival.dtype)
    if all_active:
        return Decision(halting.survival * p, halting.active, crossed, survival)
    crossed = halting.active & crossed
    keeps = halting.active & ~crossed if rule == "undo" else halting.active
    return Decision(halting.survival * p, keeps, crossed, survival)


@lru_cache(maxsize=64)
def _most_surviving(threshold: float, dtype: torch.dtype) -> float:
    """The greatest survival probability at which 1 - C counts as `threshold` or more, as `dtype` rounds.

    Found by halving among all numbers from 0 to 1, whose bits are ordered as they are.
    """
    real, bits = ("f4", "i4") if dtype == torch.float32 else ("f8", "i8")
    one, least = np.ones(1, real), 0
    most, limit = int(one.view(bits)[0]), one * threshold
    while most - least > 1:
        middle = (least + most) // 2
        if one - np.array([middle], bits).view(real) >= limit:
            least = middle
        else:
            most = middle
    return float(np.array([least], bits).view(real)[0])


def keep(
    halting: HaltingState, decision: Decision, *, all_keep: bool = False, capped: bool = True
) -> HaltingState:
    """The halting state after the step that `decision` is about; `all_keep`: every unit keeps it.

    `capped`: some unit may reach its cap by it.
    """
    if all_keep:
        return changed(
            halting,
            survival=decision.survival,
            spent=torch.addcmul(
                halting.spent, decision.weight, _as_factor(halting.kept + halting.delay, decision)
            ),
            kept=halting.kept + 1,
            active=_active_after(halting, decision, capped=capped),
        )
    keeps, cost = decision.keeps, halting.kept + halting.delay
    kept = halting.kept + keeps
    return changed(
        halting,
        survival=torch.where(keeps, decision.survival, halting.survival),
        spent=torch.where(keeps, halting.spent + decision.weight * cost, halting.spent),
        kept=kept,
        active=halting.active & ~_crossed(decision) & (kept < halting.cap),
    )


def _as_factor(cost: Int[Tensor, " U"] | int, decision: Decision) -> Float[Tensor, " #U"]:
    weight = decision.weight
    if isinstance(cost, int):
        return _number(cost, weight.dtype, weight.device)
    return cost.to(weight.dtype)


@cached_constants(maxsize=256)
def _number(value: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " 1"]:
    return torch.full((1,), value, dtype=dtype, device=device)


def _active_after(halting: HaltingState, decision: Decision, *, capped: bool) -> Bool[Tensor, " U"]:
    """After a step that all units keep."""
    active = halting.active
    if capped:
        active = halting.kept + 1 < halting.cap
    if decision.crossed is None:
        return active
    return active.logical_and(~decision.crossed) if capped else ~decision.crossed


def _crossed(decision: Decision) -> Bool[Tensor, " U"]:
    assert decision.crossed is not None, "units that have crossed the threshold leave before all others keep"
    return decision.crossed
