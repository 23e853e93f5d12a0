"""Early exit: which units are still active, selecting them, gathering the results of those that have left.

A unit is what halts as one: a token, or a whole row (sequence). Recurrence over depth, over spans and loops
describe what is still in the batch by a subclass of `ActiveUnits`; `select` keeps some units of it, and
`HaltedResults` puts what units left behind back in the order of the full batch. Nothing else is needed,
because the numbers of a unit never depend on which other units are in the batch.

Shapes: M packed tokens in B rows, U units (M or B).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from trainables.layers.host import on_host
from trainables.layers.packing import Packing, put, take
from trainables.layers.stacked import stacked
from trainables.layers.tokens import Placed

EarlyExit = Literal["compact", "batch", "none"]
"""How halting saves computation, results being equal: halted units leave the batch (compact), the loop ends
when all units have halted (batch), or every step is run on all of them (none)."""


def exit_of_pass(asked: EarlyExit) -> EarlyExit:
    """How the present forward pass saves it: one of several models (`layers.stacked`) runs every step."""
    return "none" if stacked() else asked


_AXIS: Final = "axis"
PER_TOKEN: Final = {_AXIS: "tokens"}
"""Metadata of a field with an entry for each token in the batch."""
PER_UNIT: Final = {_AXIS: "units"}
"""Metadata of a field with an entry for each unit in the batch: a tensor, or anything that selects."""


Units = TypeVar("Units", bound="ActiveUnits")


@dataclass(frozen=True)
class Selection:
    """Some units of a batch, as indices of everything that is selected with them."""

    units: Int[Tensor, " U"]
    tokens: Int[Tensor, " M"]
    rows: Int[Tensor, " B"]
    packing: Packing


@dataclass(frozen=True, kw_only=True)
class ActiveUnits:
    """What is still in the batch. Subclasses add fields, and declare by metadata which ones are selected."""

    tokens: Placed
    per_token: bool
    """Units are tokens; else rows."""
    source: Int[Tensor, " M"] = field(metadata=PER_TOKEN)
    """Where each token was in the full batch."""
    origin: Int[Tensor, " U"] = field(metadata=PER_UNIT)
    """Where each unit was in the full batch."""

    @property
    def packing(self) -> Packing:
        """Of the tokens in the batch."""
        return self.tokens.packing

    def pick(self, units: Bool[Tensor, " U"] | Bool[np.ndarray, " U"]) -> Selection:
        """Everything that belongs to `units`; the host waits for them if it does not know them."""
        known = on_host(units) if isinstance(units, Tensor) else units
        stays = known if self.per_token else np.repeat(known, self.packing.host_counts)
        tokens, rows, packing = self.packing.select(stays)
        return Selection(tokens if self.per_token else rows, tokens, rows, packing)

    def select(self: Units, picked: Selection) -> Units:
        """Only the units in `picked`."""
        indices = {"tokens": picked.tokens, "units": picked.units}
        chosen: dict[str, Any] = {"tokens": self.tokens.select(picked.tokens, picked.rows, picked.packing)}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or _AXIS not in each.metadata:
                assert not isinstance(value, Tensor), f"{each.name} must be declared PER_TOKEN or PER_UNIT"
                continue
            index = indices[each.metadata[_AXIS]]
            chosen[each.name] = take(value, index) if isinstance(value, Tensor) else value.select(index)
        return replace(self, **chosen)


def everywhere(packing: Packing) -> tuple[Int[Tensor, " M"], Int[Tensor, " B"]]:
    """The numbers of all tokens and of all rows of a full batch: `source`, and `origin` where rows halt."""
    device = packing.row.device
    return torch.arange(packing.row.shape[0], device=device), torch.arange(packing.num_rows, device=device)


@dataclass
class HaltedResults(Generic[Units]):
    """Units that left the batch and will not change any more, in the order in which they left."""

    left: list[Units] = field(default_factory=list)

    def add(self, units: Units) -> None:
        """Add units that will not change any more."""
        self.left.append(units)

    def release(self, units: Units, stay: Bool[Tensor, " U"] | Bool[np.ndarray, " U"]) -> Units:
        """Add those of `units` that are not to `stay`; the others, still in the batch."""
        known = on_host(stay) if isinstance(stay, Tensor) else stay
        if known.all():
            return units
        self.add(units.select(units.pick(~known)))
        return units.select(units.pick(known))

    def per_token(self, *values: Callable[[Units], Shaped[Tensor, "M ..."]]) -> list[Tensor]:
        """`values` of every token, in the order of the full batch."""
        if len(self.left) == 1:
            return [value(self.left[0]) for value in values]
        source = torch.cat([part.source for part in self.left])
        return [put(torch.cat([value(part) for part in self.left]), source, len(source)) for value in values]

    def per_unit(self, *values: Callable[[Units], Shaped[Tensor, "U ..."]]) -> list[Tensor]:
        """`values` of every unit, in the order of the full batch."""
        if len(self.left) == 1:
            return [value(self.left[0]) for value in values]
        back = torch.argsort(torch.cat([part.origin for part in self.left]))
        return [take(torch.cat([value(part) for part in self.left]), back) for value in values]
