"""Memory that carries over from chunk to chunk: slots that tokens attend to, and that attend to tokens.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2, after
Didolkar et al., Temporal Latent Bottleneck. Slots begin at zero, as in the published runs, and nothing
distinguishes them: but for dropout they stay equal, and act as one slot. `start: random` and `slot_positions`
(the sinusoids of the original bottleneck, added before every chunk) break that symmetry. The feed-forward of
an update has the model's width inside, where the text has the same feed-forward everywhere.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from trainables.layers.block import Block, BlockSettings, FeedForward, Recall
from trainables.layers.block_costs import linear_flops, offer_flops, recall_flops, recall_saved_bytes
from trainables.layers.dropout import DropoutGroup
from trainables.layers.linear import LayerNorm, Linear, Vector
from trainables.layers.mask_draws import MaskDraws
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, Placed, packed_places
from trainables.layers.xpos import sinusoids
from trainables.settings import DEPTH, MOST_UNSHARED, Settings, Small


class MemorySettings(Settings):
    """How much is carried over, and how it is brought up to date."""

    slots: Annotated[int, Small(3)] = Field(default=20, ge=1)
    """Vectors of memory."""
    update_layers: Annotated[int, Field(ge=1, le=MOST_UNSHARED), DEPTH, Small(1, 2)] = 1
    """Layers, with weights of their own, by which the slots take in a chunk."""
    start: Literal["zeros", "random"] = "zeros"
    """What the learned slots begin training at: all zero, which leaves them equal, or N(0, 1)."""
    slot_positions: bool = False
    """Add a fixed encoding of its number to each slot before every chunk."""


class Update(RecomputableLayer):
    """One layer by which slots take in the states of a chunk."""

    def __init__(self, config: BlockSettings) -> None:
        super().__init__()
        self.recall = Recall(config)
        self.feedforward_norm = LayerNorm(config.width)
        self.feedforward = FeedForward(config.width, config.width, config.dropout, Linear)
        self.dropouts = DropoutGroup.within(self)

    def forward(
        self, slots: Float[Tensor, "K D"], placed: Placed, states: Float[Tensor, "M D"], packing: Packing
    ) -> Float[Tensor, "K D"]:
        """Packed slots one layer on."""
        draws = MaskDraws()
        self.dropouts.ask(draws, placed.place)
        self.recall.attention.ask(draws, placed, packing)
        draws.run()
        slots = self.recall(slots, placed, self.recall.offer(states, packing, placed))
        out: Tensor = self.feedforward(self.feedforward_norm(slots), placed, slots)
        return out


class Memory(nn.Module):
    """Slots of every row of a batch."""

    def __init__(self, config: BlockSettings, settings: MemorySettings, *, is_read: bool) -> None:
        super().__init__()
        self.settings = settings
        self.slots = Vector(settings.slots, config.width, std=0.0 if settings.start == "zeros" else 1.0)
        self.updates = nn.ModuleList(Update(config) for _ in range(settings.update_layers))
        self.readout_norm = LayerNorm(config.width) if is_read else None

    def begin(self, num_rows: int) -> Float[Tensor, "B S D"]:
        """Before the first chunk."""
        slots: Tensor = self.slots()
        if not torch.is_grad_enabled():
            # PyTorch says of views of weights that they have a gradient, though none is recorded, and what
            # hooks into its modules (its FLOP counter) then looks for one.
            slots = slots.detach()
        return slots.expand(num_rows, -1, -1)

    def marked(self, slots: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Before any chunk: slots with their positions, if they have any."""
        if not self.settings.slot_positions:
            return slots
        return slots + sinusoids(self.settings.slots, slots)

    def places(self, packing: Packing) -> Int[Tensor, "B S"]:
        """Places of the slots of a full batch, packed by `packing`."""
        slots = self.settings.slots
        return packed_places(slots_packing(packing.num_rows, slots, packing)).view(-1, slots)

    def placed(self, places: Int[Tensor, "B S"], tokens: Placed) -> Placed:
        """The slots of rows with such places, for the `tokens` of a chunk of theirs."""
        rows, each = places.shape
        return Placed(slots_packing(rows, each, tokens.packing), places.flatten(), made=tokens.made)

    def update(
        self,
        slots: Float[Tensor, "B S D"],
        placed: Placed,
        states: Float[Tensor, "M D"],
        packing: Packing,
    ) -> Float[Tensor, "B S D"]:
        """After a chunk with final `states`; `placed` are the slots."""
        packed = slots.flatten(0, 1)
        for update in self.updates:
            packed = update(packed, placed, states, packing)
        return packed.reshape(slots.shape)

    def read(self, slots: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """The slots as the readout sees them, after the last chunk."""
        assert self.readout_norm is not None
        normed: Tensor = self.readout_norm(slots)
        return normed


def _update(module: nn.Module) -> Update:
    assert isinstance(module, Update)
    return module


def offered(block: Block, slots: Float[Tensor, "B S D"], tokens: Placed) -> KeysValues:
    """Keys and values of slots for the `tokens` of their row, as `block` recalls them."""
    assert block.recall is not None
    rows, each, _ = slots.shape
    packing = slots_packing(rows, each, tokens.packing)
    return block.use(block.recall.offer, slots.flatten(0, 1), packing, tokens)


def slots_packing(rows: int, each: int, packing: Packing) -> Packing:
    """Every row has as many slots; made once for all layers that run on the tokens of `packing`."""
    made: Packing = packing.once(
        ("slots", each), lambda: Packing.of_counts(np.full(rows, each), packing.row.device)
    )
    return made


def update_flops(config: BlockSettings, settings: MemorySettings, tokens: int) -> float:
    """Taking in one chunk of `tokens` tokens."""
    attention = recall_flops(config, settings.slots, tokens) + offer_flops(config, tokens)
    feedforward = 2 * linear_flops(settings.slots, config.width, config.width)
    return settings.update_layers * (attention + feedforward)


def update_saved_bytes(config: BlockSettings, settings: MemorySettings, rows: int, tokens: int) -> float:
    """Activation bytes that taking in one chunk of `tokens` tokens a row keeps for the backward pass."""
    attention = recall_saved_bytes(config, rows, settings.slots, tokens)
    feedforward = rows * settings.slots * config.width * (4 * 5 + (2 if config.dropout else 0))
    return settings.update_layers * (attention + feedforward)
