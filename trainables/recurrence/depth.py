"""Recurrence over depth: one layer repeated until every unit has halted, with early exit.

It is shared by UT, GUT, SUT and their ablations. One step attends, proposes the next states, decides which
units halt, and keeps or undoes the step. If halting does not depend on the next states and an undone step
would be discarded, the decision comes first and the step is not run.

Shapes: M packed tokens in B rows, U units, D the width of a state, H heads of width E.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from trainables.layers.halting import Decision, Rule, decide
from trainables.layers.host import copy_to_host, upload
from trainables.layers.packing import take
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.active_units import TOKENS, ExitMode, HaltedResults, Selection
from trainables.recurrence.depth_units import (
    DepthResult,
    DepthUnits,
    HaltedUnits,
    KeyValueCache,
    LayerOutputs,
    SideOutputs,
)
from trainables.recurrence.pass_records import PassRecord, start_record


@runtime_checkable
class RecurrentLayer(Protocol):
    """A layer whose keys and values are computed separately from its queries."""

    def keys_values(self, x: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return keys and values of `tokens` with states `x`."""
        raise NotImplementedError

    def __call__(
        self, x: Float[Tensor, "M D"], tokens: Tokens, keys_values: KeysValues | None = None
    ) -> Float[Tensor, "M D"] | tuple[Float[Tensor, "M D"], SideOutputs]:
        """Return the next states, and side outputs if the layer has any.

        Without `keys_values`, tokens attend to each other.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class DepthRecurrence:
    """Repetition of one layer: the layer, the halting function, and the halting rules of units."""

    layer: RecurrentLayer
    halt: nn.Module
    """Module that maps the features of one state or of two states, (units, width) each, to halting
    probabilities, (units,)."""
    max_layers: int
    threshold: float
    rule: Rule
    origin: int
    per_token: bool
    uses_running_means: bool
    """Whether each token halts by the mean over its row up to itself: global halting in a causal model."""
    transition: bool
    sees_mixture: bool
    early_exit: ExitMode
    length_bounds: bool = True
    """Whether a unit keeps at most as many layers as its row has tokens, plus one. This does not apply to
    causal rows, whose final length is unknown during decoding."""
    delay: int = 1
    """Layers charged for the decision to halt on a state, in addition to those that computed the state."""
    halted_proposals: bool = False
    """Whether means over the row so far use the layer's output for the final states of halted tokens, instead
    of these states. Incompatible with the early exit `compact`, which does not run the layer on them."""

    @property
    def removes_tokens(self) -> bool:
        """Whether a token may be removed from the batch while other tokens of its row remain."""
        return self.per_token and self.early_exit == "compact"

    @property
    def has_external_keys(self) -> bool:
        """Whether active tokens attend to keys and values that are not computed from current states."""
        return self.removes_tokens or self.sees_mixture

    def run(self, states: Float[Tensor, "M D"], tokens: Tokens) -> DepthResult:
        """Repeat the layer on all tokens of a batch until each unit has halted."""
        cap = torch.full_like(tokens.packing.counts, self.max_layers)
        caps = np.full(tokens.packing.num_rows, self.max_layers)
        if self.length_bounds and tokens.num_visible is None:
            cap = torch.minimum(cap, tokens.packing.counts + 1)
            if self.early_exit != "none":
                caps = np.minimum(caps, tokens.packing.host_counts + 1)
        units = DepthUnits.begin(
            states,
            tokens,
            cap,
            per_token=self.per_token,
            uses_running_means=self.uses_running_means,
            delay=self.delay,
        )
        run = DepthPass(self, units, caps, record=start_record(tokens.packing))
        for number in range(1, self.max_layers + 1):
            run.step(number)
            if run.is_over:
                break
        run.end()
        return run.result()


@dataclass(frozen=True)
class Proposal:
    """Result of a step before it is kept or undone."""

    states: Float[Tensor, "M D"]
    means: Float[Tensor, "U D"] | None
    side: SideOutputs

    @property
    def features(self) -> Float[Tensor, "U D"]:
        """Input of the halting function from the proposed states, (units, width)."""
        return self.states if self.means is None else self.means

    def of_active(self, selection: Selection) -> "Proposal":
        """Return the proposal of the remaining units."""
        means = None if self.means is None else take(self.means, selection.units)
        side = tuple(take(each, selection.tokens) for each in self.side)
        return Proposal(take(self.states, selection.tokens), means, side)


@dataclass
class DepthPass:
    """State of one forward pass: active units, results of halted units, cached keys and values."""

    recurrence: DepthRecurrence
    units: DepthUnits
    row_caps: Int[np.ndarray, " B"]
    """Maximum number of layers that the units of each row may keep."""
    record: PassRecord | None = None
    """Record of layers for a watcher; None without a watcher."""
    halted: HaltedResults[HaltedUnits] = field(default_factory=HaltedResults)
    layer_outputs: list[LayerOutputs] = field(default_factory=list)
    cache: KeyValueCache | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.caps = set(self.row_caps.tolist())

    def step(self, number: int) -> None:
        """Run step `number`, counted from 1."""
        undo, transition = self.recurrence.rule == "undo", self.recurrence.transition
        proposed = self._propose() if transition else None
        decision = self._decide(number, proposed)
        if undo:
            selection = self._remove_units(decision.keeps, stale=not transition)
            if self.is_over:
                return
            if self.recurrence.early_exit == "compact":
                decision = decision.of_remaining(None if selection is None else selection.units)
            if selection is not None and proposed is not None:
                proposed = proposed.of_active(selection)
        proposal = self._propose() if proposed is None else proposed
        self.units = self.units.step(proposal.states, proposal.features, decision)
        self.record_outputs(number, decision, proposal)
        if number < self.recurrence.max_layers and (not undo or number in self.caps):
            self._remove_units(self.units.halting.active, stale=not undo)

    def record_outputs(self, number: int, decision: Decision, proposal: Proposal) -> None:
        """Report a step of all remaining units to the watcher, and store its side outputs."""
        if self.record is not None:
            weight = self.units.at_tokens(self.units.halting.survival).squeeze(1)
            keeps = self.units.at_tokens(decision.keeps).squeeze(1)
            source_rows = upload(self.units.batch_token, proposal.states.device)
            self.record.record_layer(number, source_rows, weight, keeps, proposal.side)
        if proposal.side:
            weight = self.units.at_tokens(self.units.halting.survival * decision.keeps).squeeze(1)
            self.layer_outputs.append(LayerOutputs(proposal.side, weight))

    def end(self) -> None:
        """Add all remaining units to the halted ones."""
        self.halted.add(self.units.results())

    def result(self) -> DepthResult:
        """Return the results of all units; must be called after `end`."""
        (states,) = self.halted.per_token(lambda units: units.states)
        ponder, kept, computed = self.halted.per_unit(
            lambda units: units.ponder, lambda units: units.num_kept, lambda units: units.computed
        )
        return DepthResult(states, ponder, kept, computed, self.layer_outputs)

    def _propose(self) -> Proposal:
        """Run the layer on all active units."""
        layer, tokens = self.recurrence.layer, self.units.tokens
        outputs = layer(self.units.states, tokens, self._context())
        states, side = outputs if isinstance(outputs, tuple) else (outputs, ())
        self.units = self.units.count_step()
        means = self.units.means_of(states, halted_as_given=self.recurrence.halted_proposals)
        return Proposal(states, means, side)

    def _decide(self, number: int, proposal: Proposal | None) -> Decision:
        halting, features = self.units.halting, self.units.features
        if number <= self.recurrence.origin:
            p = torch.zeros_like(halting.survival)
        else:
            feature_parts = (features,) if proposal is None else (features, proposal.features)
            p = self.recurrence.halt(*feature_parts)
        return decide(halting, p, self.recurrence.threshold, self.recurrence.rule)

    def _context(self) -> KeysValues | None:
        """Return the keys and values for active tokens; None if the layer computes them from its input."""
        if not self.recurrence.has_external_keys:
            return None
        keys_values = self._keys_values(self.units)
        if not self.recurrence.removes_tokens:
            return keys_values
        if self.cache is None:
            self.cache = KeyValueCache(keys_values, np.arange(keys_values.both.shape[0]))
        else:
            self.cache = self.cache.write(self.cache.active_indices, keys_values)
        return self.cache.keys_values

    def _keys_values(self, units: DepthUnits) -> KeysValues:
        layer = self.recurrence.layer
        source = units.mixture() if self.recurrence.sees_mixture else units.states
        if isinstance(layer, RecomputableLayer):
            return layer.use(layer.keys_values, source, units.tokens)
        return layer.keys_values(source, units.tokens)

    def _remove_units(self, keep_mask: Bool[Tensor, " U"], *, stale: bool) -> Selection | None:
        """Remove units outside `keep_mask` from the batch; return the remaining ones, or None if all remain.

        Args:
            keep_mask: Remaining units.
            stale: Whether the states of removed units are newer than their cached keys and values.
        """
        if self.recurrence.early_exit == "none":
            return None
        if self.recurrence.early_exit == "batch":
            self.is_over = not bool(keep_mask.any())
            return None
        host_mask = copy_to_host(keep_mask)
        self.is_over = not host_mask.any()
        if self.is_over or host_mask.all():
            return None
        if self.recurrence.per_token and self.cache is None:
            self._context()
            stale = False
        selection, removed = self.units.select_indices(host_mask), self.units.select_indices(~host_mask)
        units = self.units.with_halted(removed.host_masks[TOKENS])
        self.units, removed_units = units.select(selection), units.select(removed)
        if self.cache is not None:
            if stale:
                # Active tokens still attend to the final states of halted tokens.
                places = self.cache.active_indices[removed.host_masks[TOKENS]]
                self.cache = self.cache.write(places, self._keys_values(removed_units))
            self.cache = self.cache.of_active(selection)
        self.halted.add(removed_units.results())
        return selection
