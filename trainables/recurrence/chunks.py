"""Recurrence over chunks: settings, the loop over chunks, and costs shared by all chunk-wise models.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2 and 4. Where
text and published runs differ, this module follows the runs: no START and END, although the text adds them to
all models (`boundaries`), and a readout from the final memory, although the text reads END with halting
(`readout`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from trainables.layers.block import BlockSettings
from trainables.layers.boundaries import NUM_BOUNDARIES, boundaries, check_pooling, pool
from trainables.layers.chunking import Chunk, ChunkLayout, ChunkSettings, PaddedChunkLayout
from trainables.layers.constant_shapes import constant_shapes
from trainables.layers.memory import (
    Memory,
    MemorySettings,
    update_activation_bytes,
    update_flops,
)
from trainables.layers.packing import Packing, put_rows, take
from trainables.layers.tokens import PlacedVectors, Tokens
from trainables.recurrence.pass_records import record_parts
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import CausalSettings, Small
from trainables.types import Encoded

Layers = Callable[
    [Float[Tensor, "M D"], Tokens, Float[Tensor, "B S D"], int], RecurrenceResult | Float[Tensor, "M D"]
]
"""Function that runs the layers on one chunk.

Its arguments are the states and tokens of the chunk, the memory of its rows and the index of the chunk. It
returns the states alone if all layers run on every token."""


FLASH_PADDED: Final = "attention 'flash' cannot leave out the padding of captured chunks"
"""Reason why steps with the kernel `flash` cannot be captured; other settings select another kernel."""


class ChunkedSettings(BlockSettings, CausalSettings):
    """Settings of models that process a sequence chunk by chunk, with a memory."""

    chunk: ChunkSettings = ChunkSettings()
    """Division of the sequence into chunks."""
    memory: MemorySettings = MemorySettings()
    """Memory that is passed from chunk to chunk."""
    boundaries: bool = False
    """Learned START and END around each sequence."""
    readout: Annotated[
        Literal["slots", "last-slot", "mean", "end", "start"], Small("slots", "last-slot", "mean", "end")
    ] = "slots"
    """Representation of a sequence: the mean of the final memory slots (slots) or the last slot (last-slot);
    or the mean, the last or the first of the final states. The first state does not depend on memory."""

    @model_validator(mode="after")
    def _readout_sees_all(self) -> "ChunkedSettings":
        if self.causal and self.boundaries:
            raise ValueError(
                "a causal model must not see where a sequence ends, got boundaries=True and causal=True;"
                " set boundaries: false"
            )
        check_pooling("readout", self.readout, causal=self.causal)
        return self

    @property
    def reads_memory(self) -> bool:
        """Whether the readout reads the final memory as the representation of a sequence."""
        return self.readout in ("slots", "last-slot")

    @property
    def given_length(self) -> bool:
        """Whether the ends of chunks depend on the length of the full sequence."""
        return self.chunk.by == "count" or self.chunk.is_even(causal=self.causal)

    def chunk_lengths(self, length: int) -> list[int]:
        """Return the number of positions in each chunk of a sequence of `length` tokens."""
        total = length + NUM_BOUNDARIES * self.boundaries
        return self.chunk.lengths(total, causal=self.causal)


@dataclass(frozen=True)
class ChunkPart:
    """Tokens of a chunk, and memory slots of its rows."""

    tokens: Tokens
    slots: PlacedVectors

    @classmethod
    def of_all(
        cls,
        layout: ChunkLayout,
        chunks: Sequence[Chunk],
        tokens: Tokens,
        memory: Memory,
        places: Int[Tensor, "B S"],
    ) -> "list[ChunkPart]":
        """Build the part of each chunk from all `tokens` of a batch and the `places` of all slots."""
        rows = np.arange(0)  # rows of `cross_kv`, which is None here
        ordered = tokens.select(layout.order, rows, layout.packing)
        chunk_tokens = ordered.split([chunk.packing for chunk in chunks])
        chunk_places = [
            places if chunk.is_in_all_rows else places.index_select(0, chunk.rows) for chunk in chunks
        ]
        return [
            cls(tokens_of_chunk, memory.place_slots(place, tokens_of_chunk))
            for tokens_of_chunk, place in zip(chunk_tokens, chunk_places, strict=True)
        ]


class Chunked(nn.Module):
    """Base of models that loop over chunks; the layers that run on a chunk are an argument."""

    def __init__(self, config: ChunkedSettings) -> None:
        super().__init__()
        self.chunked = config
        self.boundaries = boundaries(config.width, present=config.boundaries)
        self.memory = Memory(config, config.memory, is_read=config.reads_memory)

    def encode(self, x: Float[Tensor, "N S D"], mask: Tensor, layers: Layers, bound: int) -> Encoded:
        """Encode right-padded `x`.

        Args:
            x: Embedded tokens, (batch, length, width).
            mask: True at tokens, (batch, length).
            layers: Function that runs the layers on one chunk.
            bound: Maximum number of layers on a chunk.
        """
        states, packing = self.boundaries(x, mask)
        run_chunks = self._run_chunks if constant_shapes() is None else self._run_padded_chunks
        result, slots = run_chunks(states, packing, layers, bound)
        return Encoded(
            states=self.boundaries.padded(result.states, packing, x),
            pooled=self._read_out(result.states, packing, slots),
            depth=result.depth,
            ponder=result.ponder,
            computed=result.computed,
            bound=torch.full_like(result.depth, bound),
        )

    def _read_out(self, states: Tensor, packing: Packing, slots: Tensor) -> Float[Tensor, "B D"]:
        match self.chunked.readout:
            case "slots":
                return self.memory.read(slots).mean(1)
            case "last-slot":
                return self.memory.read(slots)[:, -1]
            case how:
                return pool(states, packing, how)

    def _run_chunks(
        self, states: Float[Tensor, "M D"], packing: Packing, layers: Layers, bound: int
    ) -> tuple[RecurrenceResult, Float[Tensor, "B S D"]]:
        """Run all chunks in order; depths and costs of a row are means over its chunks."""
        config, rows_in_all = self.chunked, packing.num_rows
        layout = ChunkLayout.of(packing, config.chunk, causal=config.causal)
        tokens = layout.tokens(config.size_of_head, states.dtype, causal=config.causal)
        all_slots = self.memory.begin(rows_in_all)
        chunk_results: list[Tensor] = []
        totals: list[Float[Tensor, " B"]] = []
        chunks = layout.chunks()
        parts = ChunkPart.of_all(layout, chunks, tokens, self.memory, self.memory.places(packing))
        chunk_states = torch.split(
            take(states, layout.order), [chunk.packing.row.shape[0] for chunk in chunks]
        )
        with record_parts(packing) as next_part:
            for number, (chunk, part) in enumerate(zip(chunks, parts, strict=True)):
                next_part(chunk.tokens)
                slots = all_slots if chunk.is_in_all_rows else take(all_slots, chunk.rows)
                memory = self.memory.with_positions(slots)
                result = layers(chunk_states[number], part.tokens, memory, number)
                if isinstance(result, RecurrenceResult):
                    chunk_results.append(result.states)
                    costs = torch.stack((result.depth, result.ponder, result.computed), 1)
                    totals.append(costs if chunk.is_in_all_rows else put_rows(costs, chunk.rows, rows_in_all))
                else:
                    chunk_results.append(result)
                updated = self.memory.update(memory, part.slots, chunk_results[-1], chunk.packing).to(
                    slots.dtype
                )
                all_slots = updated if chunk.is_in_all_rows else all_slots.index_copy(0, chunk.rows, updated)
        row_states = put_rows(torch.cat(chunk_results), layout.order, states.shape[0])
        return _mean_over_chunks(row_states, totals, layout.counts, packing, bound), all_slots

    def _run_padded_chunks(
        self, states: Float[Tensor, "M D"], packing: Packing, layers: Layers, bound: int
    ) -> tuple[RecurrenceResult, Float[Tensor, "B S D"]]:
        """Run all chunks with constant shapes; rows without a chunk run without an effect."""
        config, memory = self.chunked, self.memory
        layout = PaddedChunkLayout.of(
            packing, config.chunk, config.size_of_head, states.dtype, causal=config.causal
        )
        slots, places = memory.begin(packing.num_rows), memory.places(packing)
        parts = [ChunkPart(chunk.tokens, memory.place_slots(places, chunk.tokens)) for chunk in layout.chunks]
        chunk_results: list[Tensor] = []
        totals: list[Float[Tensor, "B 3"]] = []
        for number, (chunk_states, part) in enumerate(zip(layout.parts(states), parts, strict=True)):
            exists, with_positions = layout.chunks[number].exists[:, None], memory.with_positions(slots)
            result = layers(chunk_states, part.tokens, with_positions, number)
            if isinstance(result, RecurrenceResult):
                costs = torch.stack((result.depth, result.ponder, result.computed), 1)
                totals.append(torch.where(exists, costs, 0))
            chunk_results.append(result.states if isinstance(result, RecurrenceResult) else result)
            updated = memory.update(with_positions, part.slots, chunk_results[-1], part.tokens.packing)
            slots = torch.where(exists[..., None], updated.to(slots.dtype), slots)
        return _mean_over_chunks(
            layout.join_parts(chunk_results), totals, layout.counts, packing, bound
        ), slots


def _mean_over_chunks(
    states: Float[Tensor, "M D"],
    totals: Sequence[Float[Tensor, "B 3"]],
    counts: Int[Tensor, " B"],
    packing: Packing,
    bound: int,
) -> RecurrenceResult:
    """Return the result of full rows: depths and costs are means over the chunks of a row.

    `totals` is empty if all layers ran on every token.
    """
    if not totals:
        return RecurrenceResult.of_all(states, packing, bound)
    depth, ponder, num_computed = (torch.stack([*totals]).sum(0) / counts.to(states.dtype)[:, None]).unbind(1)
    return RecurrenceResult(states, depth.detach(), ponder, num_computed.detach())


def chunks_flops(config: ChunkedSettings, length: int, layers: Callable[[int], float]) -> float:
    """Return the FLOPs of a chunk-wise encoder on a sequence of `length` tokens.

    `layers` returns the FLOPs of all layers on a chunk, given its length.
    """
    return sum(
        layers(chunk) + update_flops(config, config.memory, chunk) for chunk in config.chunk_lengths(length)
    )


def chunks_activation_bytes(
    config: ChunkedSettings, rows: int, length: int, layers: Callable[[int], float]
) -> float:
    """Return the bytes stored for the backward pass on `rows` sequences of `length` tokens.

    `layers` returns the bytes kept by all layers on a chunk, given its length.
    """
    return sum(
        layers(chunk) + update_activation_bytes(config, config.memory, rows, chunk)
        for chunk in config.chunk_lengths(length)
    )
