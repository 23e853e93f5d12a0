"""The result of a recurrence on packed tokens, and the `Encoded` that encoders and decoders make of it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trainables.layers.boundaries import Boundaries, NoBoundaries, Pooling, pool
from trainables.layers.packing import Packing
from trainables.types import Encoded


@dataclass(frozen=True)
class RecurrenceResult:
    """Final states of M packed tokens in B rows, and the depth and cost of each row."""

    states: Float[Tensor, "M D"]
    depth: Float[Tensor, " B"]
    """Layers kept, the mean over tokens where they halt one by one. Detached, like `computed`."""
    ponder: Float[Tensor, " B"]
    computed: Float[Tensor, " B"]

    @classmethod
    def of_all(cls, states: Float[Tensor, "M D"], packing: Packing, layers: int) -> "RecurrenceResult":
        """After `layers` layers on every token, where nothing halts."""
        depth = states.new_full((packing.num_rows,), layers)
        return cls(states, depth, torch.zeros_like(depth), depth)

    def encoded(
        self,
        boundaries: Boundaries | NoBoundaries,
        packing: Packing,
        x: Float[Tensor, "N S D"],
        *,
        pooling: Pooling,
        bound: int,
    ) -> Encoded:
        """For padded input `x`, packed by `boundaries` as `packing`, where at most `bound` layers can run."""
        return Encoded(
            states=boundaries.padded(self.states, packing, x),
            pooled=pool(self.states, packing, pooling),
            depth=self.depth,
            ponder=self.ponder,
            computed=self.computed,
            bound=torch.full_like(self.depth, bound),
        )


def written(result: RecurrenceResult, packing: Packing, y: Float[Tensor, "N T D"], bound: int) -> Encoded:
    """What a decoder that can run at most `bound` layers returns for answers `y` that ended as `result`."""
    return result.encoded(NoBoundaries(), packing, y, pooling="end", bound=bound)
