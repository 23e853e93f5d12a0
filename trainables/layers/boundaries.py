"""Add START before the first token and END after the last, and pool a row of states into one vector.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A. START and
END are learned, start at N(0, 1), and count as real tokens everywhere.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from trainables.layers.linear import Vector
from trainables.layers.packing import Packing, pack, packing_of, take
from trainables.settings import CausalSettings

Pooling = Literal["mean", "end", "start"]
NUM_BOUNDARIES = 2


class Boundaries(nn.Module):
    """Learned START and END vectors."""

    count = NUM_BOUNDARIES

    def __init__(self, width: int) -> None:
        super().__init__()
        self.start = Vector(width, std=1.0)
        self.end = Vector(width, std=1.0)

    def forward(
        self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]
    ) -> tuple[Float[Tensor, "M D"], Packing]:
        """Return the packed tokens of right-padded `x` between START and END; extra padding has no effect."""
        packing = packing_of(mask, NUM_BOUNDARIES)
        end_vectors = (vector().expand(x.shape[0], -1) for vector in (self.start, self.end))
        return take(torch.cat((x.flatten(0, 1), *end_vectors)), _source_indices(packing, x.shape[1])), packing

    def padded(
        self, states: Float[Tensor, "M D"], packing: Packing, x: Float[Tensor, "N S D"]
    ) -> Float[Tensor, "N P D"]:
        """Return the padded form of packed states: input `x` with START and END, zero at padding."""
        return _pad_states(states, packing, x.shape[1] + NUM_BOUNDARIES)


class NoBoundaries(nn.Module):
    """Tokens without START and END, for causal models, which must not depend on the end of a sequence."""

    count = 0

    def forward(
        self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]
    ) -> tuple[Float[Tensor, "M D"], Packing]:
        """Return the packed tokens of right-padded `x`; extra padding has no effect."""
        return pack(x, mask)

    def padded(
        self, states: Float[Tensor, "M D"], packing: Packing, x: Float[Tensor, "N S D"]
    ) -> Float[Tensor, "N S D"]:
        """Return states of packed tokens in the padded form of input `x`, zero at padding."""
        return _pad_states(states, packing, x.shape[1])


def boundaries(width: int, *, present: bool) -> Boundaries | NoBoundaries:
    """Build `Boundaries` if START and END are `present`, else `NoBoundaries`."""
    return Boundaries(width) if present else NoBoundaries()


def _source_indices(packing: Packing, columns: int) -> Int[Tensor, " M"]:
    """Return the index of each token in a concatenation: inputs of all N rows, N times START, N times END.

    Inputs have `columns` columns per row.
    """
    row, column, start = packing.row, packing.column, packing.num_rows * columns
    inner = torch.where(column == 0, start + row, row * columns + column - 1)
    is_end = column == packing.counts.index_select(0, row) - 1
    return torch.where(is_end, start + packing.num_rows + row, inner)


def _pad_states(states: Tensor, packing: Packing, columns: int) -> Tensor:
    return nn.functional.pad(packing.pad(states), (0, 0, 0, columns - packing.width))


def pool(x: Float[Tensor, "M D"], packing: Packing, pooling: Pooling) -> Float[Tensor, "B D"]:
    """Return one vector per row: the mean over START, tokens and END, or the state at END or START.

    Args:
        x: Packed states, (tokens, width).
        packing: Packing of the states.
        pooling: Pooling method.
    """
    if pooling == "mean":
        return packing.mean(x)
    first_places, last_places = packing.ends
    return x.index_select(0, first_places if pooling == "start" else last_places)


class PooledSettings(CausalSettings):
    """Settings of models that pool the final states of a sequence into one vector."""

    pooling: Pooling = "end"
    """Representation of a sequence: the state at END or START, or the mean over all states. The causal form
    has no START and END: there it is the state of the last token, or the mean."""

    @model_validator(mode="after")
    def _pooling_sees_all(self) -> "PooledSettings":
        check_pooling("pooling", self.pooling, causal=self.causal)
        return self


def positions(config: CausalSettings, length: int) -> int:
    """Return the number of states of a sequence of `length` tokens, START and END included if present."""
    return length if config.causal else length + NUM_BOUNDARIES


def check_pooling(field: str, pooling: str, *, causal: bool) -> None:
    """Raise ValueError if the pooled state would not depend on the full sequence."""
    if causal and pooling == "start":
        raise ValueError(
            f"the first state of a causal model sees one token, got {field}='start' and causal=True;"
            f" set {field} to end or mean, or causal: false"
        )
