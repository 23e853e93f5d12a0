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

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainables.layers.packing import take
from trainables.regions import halting as region
from trainables.regions.compiling import compiling
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
    kept: Int[Tensor, " U"]
    """K: steps kept."""
    computed: Int[Tensor, " U"]
    """Steps run, the undone one included."""
    cap: Int[Tensor, " U"]
    """Most steps a unit may keep."""
    active: Bool[Tensor, " U"]
    delay: int = 1
    """Layers from a state to the decision to halt on it."""

    @classmethod
    def begin(cls, cap: Int[Tensor, " U"], dtype: torch.dtype, delay: int = 1) -> "HaltingState":
        """All units active, nothing spent."""
        one = torch.ones(cap.shape, dtype=sum_dtype(dtype), device=cap.device)
        none = torch.zeros_like(cap)
        return cls(one, torch.zeros_like(one), none, none, cap, cap > 0, delay)

    def select(self, units: Int[Tensor, " K"]) -> "HaltingState":
        """The state of some units."""
        return HaltingState(
            take(self.survival, units),
            take(self.spent, units),
            self.kept.index_select(0, units),
            self.computed.index_select(0, units),
            self.cap.index_select(0, units),
            self.active.index_select(0, units),
            self.delay,
        )

    def count_run(self) -> "HaltingState":
        """One more step was run on every unit."""
        return replace(self, computed=self.computed + 1)

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
    crossed: Bool[Tensor, " U"]
    """Units whose C_l has reached the threshold."""
    survival: Float[Tensor, " U"]

    def select(self, units: Int[Tensor, " K"]) -> "Decision":
        """The outcome for some units."""
        return Decision(
            take(self.weight, units),
            self.keeps.index_select(0, units),
            self.crossed.index_select(0, units),
            take(self.survival, units),
        )


def decide(
    halting: HaltingState, p: Float[Tensor, " U"], threshold: float, rule: Rule, *, all_active: bool = False
) -> Decision:
    """Decide this step for every unit, given the probability `p` of halting on the state before it.

    `all_active`: no unit has halted yet. Then those that cross the threshold must leave before the step is
    kept, where they undo it; `keeps` is not told apart for them.
    """
    if compiling():
        return _decided(halting, p, threshold, undo=rule == "undo", all_active=all_active)
    p = p.to(halting.survival.dtype)
    survival = halting.survival * (1 - p)
    crossed = 1 - survival >= threshold
    if all_active:
        return Decision(halting.survival * p, halting.active, crossed, survival)
    crossed = halting.active & crossed
    keeps = halting.active & ~crossed if rule == "undo" else halting.active
    return Decision(halting.survival * p, keeps, crossed, survival)


def keep(halting: HaltingState, decision: Decision, *, all_keep: bool = False) -> HaltingState:
    """The halting state after the step that `decision` is about; `all_keep`: every unit keeps it."""
    if compiling():
        step = compiled_step(decision, all_keep=all_keep)
        survival, spent, kept, active = region.account_after(_account(halting), step, delay=halting.delay)
        return replace(halting, survival=survival, spent=spent, kept=kept, active=active)
    keeps = decision.keeps
    cost = halting.kept + halting.delay
    if all_keep:
        kept = halting.kept + 1
        return replace(
            halting,
            survival=decision.survival,
            spent=torch.addcmul(halting.spent, decision.weight, cost.to(decision.weight.dtype)),
            kept=kept,
            active=(kept < halting.cap).logical_and_(~decision.crossed),
        )
    kept = halting.kept + keeps
    return replace(
        halting,
        survival=torch.where(keeps, decision.survival, halting.survival),
        spent=torch.where(keeps, halting.spent + decision.weight * cost, halting.spent),
        kept=kept,
        active=halting.active & ~decision.crossed & (kept < halting.cap),
    )


def compiled_step(decision: Decision, *, all_keep: bool) -> region.Step:
    """A decision as regions read it."""
    keeps = None if all_keep else decision.keeps
    return region.Step(decision.weight, keeps, decision.crossed, decision.survival)


def _account(halting: HaltingState) -> region.Account:
    return region.Account(halting.survival, halting.spent, halting.kept, halting.cap, halting.active)


def _decided(
    halting: HaltingState, p: Float[Tensor, " U"], threshold: float, *, undo: bool, all_active: bool
) -> Decision:
    step = region.decided(_account(halting), p, threshold=threshold, undo=undo, all_active=all_active)
    return Decision(step.weight, halting.active if step.keeps is None else step.keeps, *step[2:])
