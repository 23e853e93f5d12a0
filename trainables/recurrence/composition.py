"""Recurrence over spans, as in CRvNN: soft neighbours, composition and existential probabilities, halting.

In one step, every position computes from its soft neighbours a score of being composed into its right
neighbour. The higher the score of its left neighbour, the more of its own vector is replaced. Content moves
right; the last token is composed into no other token and ends as the root. In the text of the source content
moves left, in its equations right.

Source: Ray Chowdhury and Caragea, On the Design Space Between Transformers and Recursive Neural Nets, Eq.
12-17; the rest as in the released code that accompanies it.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.layers.host import copy_to_host, upload
from trainables.layers.linear import Vector
from trainables.layers.packing import Packing, put_rows, take
from trainables.layers.recomputing import run_recomputable
from trainables.layers.tokens import PlacedVectors, packed_places
from trainables.recurrence.active_units import (
    PER_TOKEN,
    PER_UNIT,
    ActiveUnits,
    ExitMode,
    HaltedResults,
    full_batch_indices,
)
from trainables.recurrence.cells import Initial, RecursiveCell, gelu, linear
from trainables.recurrence.neighbours import Retriever, neighbours
from trainables.recurrence.pass_records import start_record
from trainables.types import sum_dtype

EPSILON = 1e-8
"""Added to every term of a denominator, and inside the logarithm of the halt penalty."""


class Scorer(nn.Module):
    """Score of each position for being composed into its right neighbour, from its window of soft neighbours.

    Transition features are a mix of two vectors by how much was composed into the position in the last step.
    """

    def __init__(
        self, width: int, window: int, features: int | None, *, initial: Initial, tanh_gelu: bool
    ) -> None:
        super().__init__()
        self.inner = linear(window * width + (features or 0), width, initial)
        self.outer = linear(width, 1, initial)
        self.activation = gelu(tanh=tanh_gelu)
        self.taken = None if features is None else Vector(features, std=1.0)
        self.untaken = None if features is None else Vector(features, std=1.0)

    def forward(
        self, window: Float[Tensor, "M W"], taken_probability: Float[Tensor, " M"]
    ) -> Float[Tensor, " M"]:
        """Return a score for each position; the alternative of no composition has the score zero.

        Args:
            window: Concatenated states of the soft neighbours, (tokens, window * width).
            taken_probability: How much was composed into each position in the last step, in [0, 1].
        """
        if self.taken is not None and self.untaken is not None:
            share = taken_probability[:, None].to(window.dtype)
            window = torch.cat((window, share * self.taken() + (1 - share) * self.untaken()), -1)
        score: Tensor = self.outer(self.activation(self.inner(window))).squeeze(-1)
        return score.to(sum_dtype(score.dtype))


@dataclass(frozen=True, kw_only=True)
class ComposingRows(ActiveUnits):
    """Rows that have not halted, as M packed tokens between START and END."""

    states: Float[Tensor, "M C"] = field(metadata=PER_TOKEN)
    exist: Float[Tensor, " M"] = field(metadata=PER_TOKEN)
    """E: existential probability, that a position has not been composed into another position yet."""
    taken_share: Float[Tensor, " M"] = field(metadata=PER_TOKEN)
    """How much was composed into each position in the last step, in [0, 1]."""
    can_compose: Bool[Tensor, " M"] = field(metadata=PER_TOKEN)
    """Positions that can be composed into another: all but START, END and the last token."""
    num_kept: Int[Tensor, " B"] = field(metadata=PER_UNIT)
    run: Int[Tensor, " B"] = field(metadata=PER_UNIT)
    active: Bool[Tensor, " B"] = field(metadata=PER_UNIT)
    """Rows that have not halted."""

    @classmethod
    def begin(cls, states: Float[Tensor, "M C"], packing: Packing) -> "ComposingRows":
        """Return all rows of a full batch before the first step."""
        source, rows = full_batch_indices(packing)
        exist = torch.ones(states.shape[0], dtype=sum_dtype(states.dtype), device=states.device)
        behind = packing.counts.index_select(0, packing.row) - packing.column
        zeros = torch.zeros_like(packing.counts)
        return cls(
            tokens=PlacedVectors(packing, packed_places(packing)),
            per_token=False,
            batch_token=source,
            batch_unit=rows,
            states=states,
            exist=exist,
            taken_share=torch.zeros_like(exist),
            can_compose=(packing.column > 0) & (behind > NUM_BOUNDARIES),
            num_kept=zeros,
            run=zeros,
            active=torch.ones_like(zeros, dtype=torch.bool),
        )

    def surviving(self, threshold: float) -> Int[Tensor, " B"]:
        """Return the number of tokens of each row that exist with a probability above `threshold`."""
        return self.packing.pad(self.exist > threshold).sum(1) - NUM_BOUNDARIES


@dataclass(frozen=True)
class CompositionResult:
    """Final states and numbers of steps of every row of the full batch."""

    states: Float[Tensor, "M C"]
    exist: Float[Tensor, " M"]
    num_kept: Int[Tensor, " B"]
    run: Int[Tensor, " B"]
    unfinished: Bool[Tensor, " B"]
    """Rows that reached their maximum number of steps with more than one token left."""


@dataclass(frozen=True)
class Composition:
    """Loop of soft composition with a cell, a scorer, a retriever and a rule that halts rows."""

    cell: RecursiveCell
    scorer: Scorer
    retriever: Retriever
    window: int
    modulated: bool
    threshold: float | None
    """A row halts when at most one token exists with a probability above this threshold; None: rows never
    halt."""
    early_exit: ExitMode

    def run(self, states: Float[Tensor, "M C"], packing: Packing) -> CompositionResult:
        """Compose until each row has halted or has run as many steps as it has tokens."""
        composing, halted = ComposingRows.begin(states, packing), HaltedResults[ComposingRows]()
        record = None if self.threshold is None else start_record(packing, "existence")
        for number in range(1, packing.width - NUM_BOUNDARIES + 1):
            if record is not None:
                active = composing.packing.repeat_per_token(composing.active)
                row_indices = upload(composing.batch_token, active.device)
                record.record_layer(number, row_indices, composing.exist, active)
            composing = self._step(composing)
            continuing = self._continuing_rows(composing, number)
            if not continuing.any():
                break
            composing = halted.split_halted(composing, continuing)
        halted.add(composing)
        return CompositionResult(
            *halted.per_token(lambda rows: rows.states, lambda rows: rows.exist),
            *halted.per_unit(lambda rows: rows.num_kept, lambda rows: rows.run, lambda rows: rows.active),
        )

    def _continuing_rows(self, composing: ComposingRows, number: int) -> Bool[np.ndarray, " B"]:
        """Return the rows that continue after step `number`.

        The host waits for the halting state only where halting saves computation.
        """
        has_steps_left: np.ndarray = composing.packing.host_counts - NUM_BOUNDARIES > number
        if self.early_exit == "none" or self.threshold is None:
            return has_steps_left
        continues: np.ndarray = has_steps_left & copy_to_host(composing.active)
        if self.early_exit == "compact" or not continues.any():
            return continues
        return has_steps_left

    def _step(self, composing: ComposingRows) -> ComposingRows:
        states, exist, taken_share = run_recomputable(self.cell, self._compose_step, composing)
        if self.threshold is not None and self.early_exit != "compact":
            is_active = composing.packing.repeat_per_token(composing.active)
            states = torch.where(is_active[:, None], states, composing.states)
            exist, taken_share = (
                torch.where(is_active, exist, composing.exist),
                torch.where(is_active, taken_share, composing.taken_share),
            )
        updated = replace(composing, states=states, exist=exist, taken_share=taken_share)
        updated = replace(updated, num_kept=composing.num_kept + composing.active, run=composing.run + 1)
        if self.threshold is None:
            return updated
        return replace(updated, active=composing.active & (updated.surviving(self.threshold) > 1))

    def _compose_step(self, composing: ComposingRows) -> tuple[Tensor, Tensor, Tensor]:
        """Run one step; return states, existential probabilities and degrees of composition after it."""
        packing = composing.packing
        left_weights, right = neighbours(packing.pad(composing.exist), self.retriever)
        left_states, window = self._soft_neighbours(composing.states, packing, left_weights, right)
        decisions = self._choose(self.scorer(window, composing.taken_share), composing, left_weights, right)
        taken_share = packing.unpad(_mix(left_weights, packing.pad(decisions)))
        composed = self.cell.compose(left_states, composing.states, composing.tokens.place)
        states = torch.addcmul(composing.states, taken_share[:, None], composed - composing.states)
        return states, composing.exist * (1 - decisions), taken_share

    def _soft_neighbours(
        self, states: Tensor, packing: Packing, left: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return each position's soft left neighbour, and its window of soft neighbours in order."""
        padded_states = packing.pad(states)
        left_states = left.to(padded_states.dtype) @ padded_states
        hidden_states = self.cell.hidden(padded_states)
        window = [hidden_states]
        left_hidden, behind = self.cell.hidden(left_states), hidden_states
        for reach in range(self.window // 2):
            left_hidden = left_hidden if reach == 0 else left.to(left_hidden.dtype) @ left_hidden
            behind = right.to(behind.dtype) @ behind
            window = [left_hidden, *window, behind]
        return packing.unpad(left_states), packing.unpad(
            torch.cat([part.to(hidden_states.dtype) for part in window], -1)
        )

    def _choose(self, score: Tensor, composing: ComposingRows, left: Tensor, right: Tensor) -> Tensor:
        """Return the modulated sigmoid of the score for composing each position.

        The score of composing at a position is compared with not composing, and with composing at either
        neighbour. Exponents are shifted by the largest score of the row; the released code uses that of the
        batch. The shift cancels except for the epsilons.
        """
        packing = composing.packing
        greatest = packing.pad(score.detach()).amax(1).clamp(min=0)
        weights = torch.where(composing.can_compose, (score - packing.repeat_per_token(greatest)).exp(), 0.0)
        terms = weights + packing.repeat_per_token((-greatest).exp()) + 2 * EPSILON
        if self.modulated:
            padded_weights = packing.pad(weights)
            terms = (
                terms + packing.unpad(_mix(left, padded_weights) + _mix(right, padded_weights)) + 2 * EPSILON
            )
        return weights / terms


@dataclass
class _TreeOrder:
    """Order of composition in balanced trees: which positions are joined at each height."""

    left: list[list[int]] = field(default_factory=list)
    right: list[list[int]] = field(default_factory=list)

    def add_tree(self, first: int, size: int) -> int:
        """Add the tree over `size` tokens from `first` on and return its height.

        The root of the tree is at its last token.
        """
        if size == 1:
            return 0
        half = (size + 1) // 2
        height = 1 + max(self.add_tree(first, half), self.add_tree(first + half, size - half))
        while len(self.left) < height:
            self.left.append([])
            self.right.append([])
        self.left[height - 1].append(first + half - 1)
        self.right[height - 1].append(first + size - 1)
        return height


def compose_balanced(
    cell: RecursiveCell, states: Float[Tensor, "M C"], packing: Packing
) -> Float[Tensor, "M C"]:
    """Compose the tokens of each row along a balanced binary tree.

    If the halves differ, the left one has one token more. The root of each row is at its last token.
    """
    order, place = _TreeOrder(), packed_places(packing)
    for first_node, size in zip(packing.starts.tolist(), packing.counts.tolist(), strict=False):
        order.add_tree(first_node, size)
    for left, right in zip(order.left, order.right, strict=True):
        left_nodes, right_nodes = (torch.tensor(children, device=states.device) for children in (left, right))
        parents = run_recomputable(
            cell, cell.compose, take(states, left_nodes), take(states, right_nodes), place[right_nodes]
        )
        states = states.index_copy(0, right_nodes, parents.to(states.dtype))
    return states


def compose_left_to_right(
    cell: RecursiveCell, start: Float[Tensor, " C"], states: Float[Tensor, "M C"], packing: Packing
) -> Float[Tensor, "M C"]:
    """Compose each token with the composition of all earlier tokens; rows are removed at their end.

    Args:
        cell: Cell that composes two states.
        start: State before the first token, (state width,).
        states: States of the leaves, (tokens, state width).
        packing: Packing of the leaves.

    Returns:
        The composed state at each token, (tokens, state width).
    """
    place, composed_parts, row_indices = packed_places(packing), list[Tensor](), list[Tensor]()
    rows = torch.arange(packing.num_rows, device=states.device)
    states_so_far = start.expand(packing.num_rows, -1).to(states.dtype)
    for column in range(packing.width):
        continuing = (packing.counts[rows] > column).nonzero().squeeze(1)
        rows, states_so_far = rows[continuing], take(states_so_far, continuing)
        token_indices = packing.starts[rows] + column
        states_so_far = run_recomputable(
            cell, cell.compose, states_so_far, take(states, token_indices), place[token_indices]
        )
        composed_parts.append(states_so_far)
        row_indices.append(token_indices)
    return put_rows(torch.cat(composed_parts), torch.cat(row_indices), states.shape[0])


def _mix(weights: Float[Tensor, "B T T"], x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the matrix product of `weights` and `x`; autocast never computes it in 16 bits."""
    return (weights * x[:, None]).sum(-1)
