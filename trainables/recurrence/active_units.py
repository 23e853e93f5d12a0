"""Early exit: track active units, select them, and gather the results of removed units.

A unit is a token or a row (sequence) that halts as one. Recurrence over depth, over spans and loops describe
the current batch by a subclass of `ActiveUnits`. `select` copies some of its units, and `HaltedResults`
restores the results of removed units to the order of the full batch. This is sufficient because values of a
unit never depend on which other units are in the batch.

Shapes: M packed tokens in B rows, U units (M or B).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes
from trainables.layers.host import copy_to_host, upload
from trainables.layers.packing import Packing, put_rows, take
from trainables.layers.tokens import PlacedVectors

ExitMode = Literal["compact", "batch", "none"]
"""Way in which halting saves computation, with equal results: halted units are removed from the batch
(compact), the loop ends when all units have halted (batch), or every step is run on all units (none)."""
EarlyExit = Literal["auto", "compact", "batch", "none"]
"""Setting of the exit mode: `auto` depends on the device (`exit_mode`)."""


def exit_mode(setting: EarlyExit, device: str) -> ExitMode:
    """Return the exit mode of a pass.

    `auto` is `compact` on a CPU. On CUDA it is `batch`: a step there takes as long as launching its kernels,
    and selecting units launches more of them. In a captured pass the mode is `none`, because shapes must be
    constant.

    Args:
        setting: Value of the field `early_exit`.
        device: Type of the device, e.g. "cuda".
    """
    if constant_shapes() is not None:
        return "none"
    if setting != "auto":
        return setting
    return "batch" if device == "cuda" else "compact"


_AXIS: Final = "axis"
TOKENS, UNITS = "tokens", "units"
PER_TOKEN: Final = {_AXIS: TOKENS}
"""Metadata of a field with an entry for each token in the batch."""
PER_UNIT: Final = {_AXIS: UNITS}
"""Metadata of a field with an entry for each unit in the batch: a tensor, an array on the host, or an object
with a method `select`."""


class RemovedUnits(Protocol):
    """Interface of removed units: where their results belong in the full batch."""

    @property
    def batch_token(self) -> Int[np.ndarray, " M"]:
        """Index of each token in the full batch."""

    @property
    def batch_unit(self) -> Int[np.ndarray, " U"]:
        """Index of each unit in the full batch."""


Units = TypeVar("Units", bound="ActiveUnits")
Removed = TypeVar("Removed", bound=RemovedUnits)


@dataclass(frozen=True)
class Selection:
    """Some units of a batch, as indices of all values that are selected with them."""

    units: Int[Tensor, " U"]
    tokens: Int[Tensor, " M"]
    rows: Int[np.ndarray, " B"]
    """Rows that have any of the units, on the host."""
    packing: Packing
    host_masks: dict[str, Bool[np.ndarray, "..."]]
    """Masks of the selected units and tokens, on the host."""


@dataclass(frozen=True, kw_only=True)
class ActiveUnits:
    """State of the current batch; subclasses add fields and declare selected fields by metadata."""

    tokens: PlacedVectors
    per_token: bool
    """Whether units are tokens; otherwise they are rows."""
    batch_token: Int[np.ndarray, " M"] = field(metadata=PER_TOKEN)
    """Index of each token in the full batch."""
    batch_unit: Int[np.ndarray, " U"] = field(metadata=PER_UNIT)
    """Index of each unit in the full batch."""

    @property
    def packing(self) -> Packing:
        """Packing of the tokens in the batch."""
        return self.tokens.packing

    def select_indices(self, units: Bool[Tensor, " U"] | Bool[np.ndarray, " U"]) -> Selection:
        """Return the indices of everything that belongs to `units`; the host waits if `units` is a tensor."""
        host_mask = copy_to_host(units) if isinstance(units, Tensor) else units
        is_staying = host_mask if self.per_token else np.repeat(host_mask, self.packing.host_counts)
        tokens, rows, packing = self.packing.select(is_staying)
        flags = {UNITS: host_mask, TOKENS: is_staying}
        units_on = tokens if self.per_token else upload(rows, tokens.device)
        return Selection(units_on, tokens, rows, packing, flags)

    def select(self: Units, selection: Selection) -> Units:
        """Return a copy with only the units in `selection`."""
        indices = {TOKENS: selection.tokens, UNITS: selection.units}
        selected_values: dict[str, Any] = {
            "tokens": self.tokens.select(selection.tokens, selection.rows, selection.packing)
        }
        for name, axis, value in self._entries():
            if isinstance(value, np.ndarray):
                selected_values[name] = value[selection.host_masks[axis]]
                continue
            index = indices[axis]
            selected_values[name] = take(value, index) if isinstance(value, Tensor) else value.select(index)
        return replace(self, **selected_values)

    def _entries(self) -> Iterator[tuple[str, str, Any]]:
        """Yield name, axis and value of every field with an entry for each token or unit."""
        values = self.__dict__
        for entry in fields(self):
            value, axis = values[entry.name], entry.metadata.get(_AXIS)
            if value is not None and axis is not None:
                yield entry.name, axis, value
            else:
                assert not isinstance(value, Tensor), f"{entry.name} must be declared PER_TOKEN or PER_UNIT"


def full_batch_indices(packing: Packing) -> tuple[Int[np.ndarray, " M"], Int[np.ndarray, " B"]]:
    """Return the indices of all tokens and of all rows of a full batch."""
    return np.arange(packing.row.shape[0]), np.arange(packing.num_rows)


@dataclass
class HaltedResults(Generic[Removed]):
    """Results of units that were removed from the batch, in the order of removal."""

    removed_units: list[Removed] = field(default_factory=list)

    def add(self, units: Removed) -> None:
        """Add units whose results are final."""
        self.removed_units.append(units)

    def split_halted(
        self: "HaltedResults[Units]", units: Units, keep_mask: Bool[Tensor, " U"] | Bool[np.ndarray, " U"]
    ) -> Units:
        """Add the units outside `keep_mask` and return the remaining ones."""
        host_mask = copy_to_host(keep_mask) if isinstance(keep_mask, Tensor) else keep_mask
        if host_mask.all():
            return units
        # Separate copies, not parts of one, because added units stay in memory.
        self.add(units.select(units.select_indices(~host_mask)))
        return units.select(units.select_indices(host_mask))

    def per_token(self, *values: Callable[[Removed], Shaped[Tensor, "M ..."]]) -> list[Tensor]:
        """Return each of `values` for all tokens, in the order of the full batch."""
        if len(self.removed_units) == 1:
            return [value(self.removed_units[0]) for value in values]
        host_order = np.concatenate([part.batch_token for part in self.removed_units])
        all_values = [torch.cat([value(part) for part in self.removed_units]) for value in values]
        source = upload(host_order, all_values[0].device)
        return [put_rows(values, source, values.shape[0]) for values in all_values]

    def per_unit(self, *values: Callable[[Removed], Shaped[Tensor, "U ..."]]) -> list[Tensor]:
        """Return each of `values` for all units, in the order of the full batch."""
        columns = [[value(part) for part in self.removed_units] for value in values]
        if len(self.removed_units) == 1:
            return [column[0] for column in columns]
        host_order = np.argsort(np.concatenate([part.batch_unit for part in self.removed_units]))
        order = upload(host_order, columns[0][0].device)
        return [take(torch.cat(column), order) for column in columns]
