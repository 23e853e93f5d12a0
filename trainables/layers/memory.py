"""Memory that is passed from chunk to chunk: slots that tokens attend to, and that attend to tokens.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2, after
Didolkar et al., Temporal Latent Bottleneck. Slots start at zero, as in the published runs, and have no
positions. Except for dropout they remain equal and act as one slot. `start: random` and `slot_positions` (the
sinusoids of the original bottleneck, added before every chunk) break this symmetry. The feed-forward of an
update has the model's width as its inner size; the text uses the same feed-forward everywhere.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from trainables.layers.block import Block, BlockSettings, FeedForward, NormedCrossAttention
from trainables.layers.block_costs import (
    cross_attention_activation_bytes,
    cross_attention_flops,
    linear_flops,
    project_kv_flops,
)
from trainables.layers.dropout import DropoutGroup
from trainables.layers.linear import LayerNorm, Linear, Vector
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, PlacedVectors, packed_places
from trainables.layers.xpos import sinusoids
from trainables.settings import DEPTH, UNSHARED_LAYERS_MAX, Settings, Small


class MemorySettings(Settings):
    """Size, initial values and updates of the memory."""

    slots: Annotated[int, Small(3)] = Field(default=20, ge=1)
    """Number of memory vectors."""
    update_layers: Annotated[int, Field(ge=1, le=UNSHARED_LAYERS_MAX), DEPTH, Small(1, 2)] = 1
    """Number of layers, with separate weights, that update the slots from a chunk."""
    start: Literal["zeros", "random"] = "zeros"
    """Initial values of the learned slots: all zero, which keeps them equal, or N(0, 1)."""
    slot_positions: bool = False
    """Add a fixed encoding of its index to each slot before every chunk."""


class MemoryUpdate(RecomputableLayer):
    """One layer that updates the slots from the states of a chunk."""

    def __init__(self, config: BlockSettings) -> None:
        super().__init__()
        self.recall = NormedCrossAttention(config)
        self.feedforward_norm = LayerNorm(config.width)
        self.feedforward = FeedForward(config.width, config.width, config.dropout, Linear)
        self.dropouts = DropoutGroup(self)

    def forward(
        self,
        slots: Float[Tensor, "K D"],
        placed_tokens: PlacedVectors,
        states: Float[Tensor, "M D"],
        packing: Packing,
    ) -> Float[Tensor, "K D"]:
        """Return the packed slots after this layer."""
        self.dropouts.draw(placed_tokens.place)
        slots = self.recall(slots, placed_tokens, self.recall.project_kv(states, packing, placed_tokens))
        result: Tensor = self.feedforward(self.feedforward_norm(slots), placed_tokens, slots)
        return result


class Memory(nn.Module):
    """Memory slots of every row of a batch."""

    def __init__(self, config: BlockSettings, settings: MemorySettings, *, is_read: bool) -> None:
        super().__init__()
        self.settings = settings
        self.slots = Vector(settings.slots, config.width, std=0.0 if settings.start == "zeros" else 1.0)
        self.updates = nn.ModuleList(MemoryUpdate(config) for _ in range(settings.update_layers))
        self.readout_norm = LayerNorm(config.width) if is_read else None

    def begin(self, num_rows: int) -> Float[Tensor, "B S D"]:
        """Return the slots before the first chunk."""
        slots: Tensor = self.slots()
        if not torch.is_grad_enabled():
            # PyTorch reports that views of weights require a gradient although none is recorded. Hooks of its
            # FLOP counter would then look for one.
            slots = slots.detach()
        return slots.expand(num_rows, -1, -1)

    def with_positions(self, slots: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Return the slots, plus their position vectors if these exist; called before each chunk."""
        if not self.settings.slot_positions:
            return slots
        return slots + sinusoids(self.settings.slots, slots)

    def places(self, packing: Packing) -> Int[Tensor, "B S"]:
        """Return the dropout places of all slots of a full batch, packed by `packing`."""
        slots = self.settings.slots
        return packed_places(slots_packing(packing.num_rows, slots, packing)).view(-1, slots)

    def place_slots(self, places: Int[Tensor, "B S"], tokens: PlacedVectors) -> PlacedVectors:
        """Return the packed slots with their dropout `places`; `tokens` are those of the same rows."""
        rows, num_slots = places.shape
        return PlacedVectors(slots_packing(rows, num_slots, tokens.packing), places.flatten())

    def update(
        self,
        slots: Float[Tensor, "B S D"],
        placed_tokens: PlacedVectors,
        states: Float[Tensor, "M D"],
        packing: Packing,
    ) -> Float[Tensor, "B S D"]:
        """Return the slots after a chunk.

        Args:
            slots: Slots before the update, (rows, slots, width).
            placed_tokens: Packing and places of the slots.
            states: Final states of the chunk, (tokens, width).
            packing: Packing of these tokens.
        """
        packed_slots = slots.flatten(0, 1)
        for update in self.updates:
            packed_slots = update(packed_slots, placed_tokens, states, packing)
        return packed_slots.reshape(slots.shape)

    def read(self, slots: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Return the normed slots for the readout after the last chunk."""
        assert self.readout_norm is not None
        normed: Tensor = self.readout_norm(slots)
        return normed


def project_memory(block: Block, slots: Float[Tensor, "B S D"], tokens: PlacedVectors) -> KeysValues:
    """Return keys and values of slots, projected by `block`; `tokens` of the same rows attend to them."""
    assert block.recall is not None
    rows, num_slots, _ = slots.shape
    packing = slots_packing(rows, num_slots, tokens.packing)
    return block.use(block.recall.project_kv, slots.flatten(0, 1), packing)


def slots_packing(rows: int, num_slots: int, packing: Packing) -> Packing:
    """Return a packing of `num_slots` slots per row, built once for all layers that use `packing`."""
    packing_of_slots: Packing = packing.get_cached(
        ("slots", num_slots), lambda: Packing.of_counts(np.full(rows, num_slots), packing.row.device)
    )
    return packing_of_slots


def update_flops(config: BlockSettings, settings: MemorySettings, tokens: int) -> float:
    """Return the FLOPs of a memory update from one chunk of `tokens` tokens."""
    attention = cross_attention_flops(config, settings.slots, tokens) + project_kv_flops(config, tokens)
    feedforward = 2 * linear_flops(settings.slots, config.width, config.width)
    return settings.update_layers * (attention + feedforward)


def update_activation_bytes(config: BlockSettings, settings: MemorySettings, rows: int, tokens: int) -> float:
    """Return the bytes stored for the backward pass of a memory update from `tokens` tokens per row."""
    attention = cross_attention_activation_bytes(config, rows, settings.slots, tokens)
    feedforward = rows * settings.slots * config.width * (4 * 5 + (2 if config.dropout else 0))
    return settings.update_layers * (attention + feedforward)
