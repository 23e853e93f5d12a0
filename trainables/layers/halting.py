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

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from trainables.layers.host import Function
from trainables.layers.packing import Packing, take
from trainables.types import sum_dtype

Rule = Literal["undo", "prefix"]


@dataclass(frozen=True)
class HaltingState:
    """Accumulated halting probabilities, costs and steps of U units.

    All sums have at least 32 bits, independently of the dtype of the states.
    """

    survival: Float[Tensor, " U"]
    """1 - C, the survival probability: that none of the kept states so far was the last."""
    charged_layers: Float[Tensor, " U"]
    """sum a_j (j + delay) over the kept steps."""
    num_kept: Int[Tensor, " U"]
    """K: number of kept steps."""
    computed: int
    """Number of steps run on every unit, including an undone one."""
    cap: Int[Tensor, " U"]
    """Maximum number of steps that each unit may keep."""
    active: Bool[Tensor, " U"]
    delay: int = 1
    """Number of layers from a state to the decision to halt on it."""

    @classmethod
    def begin(cls, cap: Int[Tensor, " U"], dtype: torch.dtype, delay: int = 1) -> "HaltingState":
        """Return the state before the first step: all units active, no cost."""
        ones = torch.ones(cap.shape, dtype=sum_dtype(dtype), device=cap.device)
        return cls(ones, torch.zeros_like(ones), torch.zeros_like(cap), 0, cap, cap > 0, delay)

    def select(self, units: Int[Tensor, " K"]) -> "HaltingState":
        """Return the halting state of the units at `units`."""
        return HaltingState(
            take(self.survival, units),
            take(self.charged_layers, units),
            self.num_kept.index_select(0, units),
            self.computed,
            self.cap.index_select(0, units),
            self.active.index_select(0, units),
            self.delay,
        )

    def count_run(self) -> "HaltingState":
        """Return the state with one more computed step counted for every unit."""
        return replace(self, computed=self.computed + 1)

    @property
    def ponder(self) -> Float[Tensor, " U"]:
        """Cost so far in layers, including the remaining mass."""
        return self.charged_layers + self.survival * self.num_kept


@dataclass(frozen=True)
class Decision:
    """Outcome of one halting decision for every unit."""

    p: Float[Tensor, " U"]
    """Probability of halting on the state before this step."""
    keeps: Bool[Tensor, " U"]
    """Units that keep this step."""
    continues: Bool[Tensor, " U"]
    """Units whose C_l has not reached the threshold."""
    all_keep: bool = False
    """Whether all units are known to keep this step."""

    def of_remaining(self, units: Int[Tensor, " K"] | None) -> "Decision":
        """Return the outcome for the units at `units` (None: all), which keep the step and continue."""
        if units is None:
            return replace(self, all_keep=True)
        keeps = self.keeps.index_select(0, units)
        return Decision(take(self.p, units), keeps, keeps, all_keep=True)


def decide(halting: HaltingState, p: Float[Tensor, " U"], threshold: float, rule: Rule) -> Decision:
    """Decide for every unit whether it keeps this step and whether it continues.

    Args:
        halting: State before the step.
        p: Probability of halting on the state before the step, for each unit.
        threshold: Halting threshold of C_l.
        rule: Rule for the step that reaches the threshold.
    """
    p = p.to(halting.survival.dtype)
    with torch.no_grad():
        reaches = 1 - halting.survival * (1 - p) >= threshold
        continues = halting.active & ~reaches
    return Decision(p, continues if rule == "undo" else halting.active, continues)


@dataclass(frozen=True)
class States:
    """States of M tokens before and after a step, and the mixture of the earlier states."""

    states_before: Float[Tensor, "M D"]
    states_after: Float[Tensor, "M D"]
    mixed: Float[Tensor, "M D"]
    packing: Packing | None
    """Rows whose tokens halt together; None if each token is a unit."""


class _KeepStep(Function):
    """Update of sums and states after a step; the backward pass launches a third of autograd's kernels."""

    @staticmethod
    def forward(  # noqa: PLR0917 autograd takes no keywords
        ctx: Any,
        survival: Tensor,
        charged_layers: Tensor,
        p: Tensor,
        mixed: Tensor,
        states_before: Tensor,
        states_after: Tensor,
        keeps: Tensor | None,
        cost: Tensor,
        packing: Packing | None,
    ) -> tuple[Tensor, ...]:
        weight, survival_after = survival * p, survival * (1 - p)
        if keeps is not None:
            weight *= keeps
            survival_after = torch.where(keeps, survival_after, survival)
        ctx.save_for_backward(survival, p, weight, states_before, keeps, cost)
        ctx.packing = packing
        mixture = torch.addcmul(mixed, _at_tokens(weight, packing), states_before)
        sums = survival_after, torch.addcmul(charged_layers, weight, cost), mixture
        return (
            sums
            if keeps is None
            else (*sums, torch.where(_at_tokens(keeps, packing), states_after, states_before))
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        survival, p, weight, states_before, keeps, cost = ctx.saved_tensors
        survival_after, charged_layers, mixture, *states_after = grads
        grad_weight = (mixture * states_before).sum(-1)
        if ctx.packing is not None:
            grad_weight = ctx.packing.pad(grad_weight).sum(1)
        # Gradient with respect to the mass that halts here instead of surviving.
        grad_mass = torch.addcmul(grad_weight - survival_after, charged_layers, cost)
        grad_before, grad_after = _at_tokens(weight, ctx.packing) * mixture, None
        if keeps is not None:
            grad_mass *= keeps
            grad_after = states_after[0] * _at_tokens(keeps, ctx.packing)
            grad_before += states_after[0] - grad_after
        grad_survival = torch.addcmul(survival_after, grad_mass, p)
        return (
            grad_survival,
            charged_layers,
            grad_mass * survival,
            mixture,
            grad_before,
            grad_after,
            None,
            None,
            None,
        )


def _at_tokens(value: Shaped[Tensor, " U"], packing: Packing | None) -> Shaped[Tensor, "M 1"]:
    """Repeat the value of each unit for all its tokens, as a column."""
    return (value if packing is None else value.index_select(0, packing.row))[:, None]


def keep(
    halting: HaltingState, decision: Decision, states: States
) -> tuple[HaltingState, Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """Return the halting state, the mixture and the states after a step.

    Args:
        halting: Halting state before the step.
        decision: Outcome of the halting decision of the step.
        states: States before and after the step.
    """
    keeps = None if decision.all_keep else decision.keeps
    cost = (halting.num_kept + halting.delay).to(halting.survival.dtype)
    survival, charged_layers, mixed, *states_after = _KeepStep.run(
        halting.survival,
        halting.charged_layers,
        decision.p,
        states.mixed,
        states.states_before,
        states.states_after,
        keeps,
        cost,
        states.packing,
    )
    num_kept = halting.num_kept + (1 if keeps is None else keeps)
    active = decision.continues & (num_kept < halting.cap)
    updated = replace(
        halting, survival=survival, charged_layers=charged_layers, num_kept=num_kept, active=active
    )
    return updated, mixed, states_after[0] if states_after else states.states_after
