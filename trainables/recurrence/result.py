"""Result of a recurrence on packed tokens, and its conversion to `Encoded` for encoders and decoders."""

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
    """Number of kept layers; the mean over tokens if tokens halt separately. Detached, like `computed`."""
    ponder: Float[Tensor, " B"]
    computed: Float[Tensor, " B"]

    @classmethod
    def of_all(cls, states: Float[Tensor, "M D"], packing: Packing, layers: int) -> "RecurrenceResult":
        """Return the result of a pass that runs `layers` layers on every token and halts nowhere."""
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
        """Convert the result to `Encoded`.

        Args:
            boundaries: Module that packed `x`.
            packing: Packing of the states.
            x: Padded input, (batch, length, width).
            pooling: Way in which one vector represents a sequence.
            bound: Maximum number of layers.
        """
        return Encoded(
            states=boundaries.padded(self.states, packing, x),
            pooled=pool(self.states, packing, pooling),
            depth=self.depth,
            ponder=self.ponder,
            computed=self.computed,
            bound=torch.full_like(self.depth, bound),
        )


def decoder_output(
    result: RecurrenceResult, packing: Packing, y: Float[Tensor, "N T D"], bound: int
) -> Encoded:
    """Return the output of a decoder for answers `y`, given its result and its maximum number of layers."""
    return result.encoded(NoBoundaries(), packing, y, pooling="end", bound=bound)
