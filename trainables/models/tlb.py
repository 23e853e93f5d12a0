"""Temporal Latent Bottleneck (TLB): a Transformer over each chunk, with a memory of earlier chunks.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 2, after
Didolkar et al. As there, every layer attends to the memory, and one feed-forward follows both attentions.

Published systems as settings (settings that are not listed have their defaults: TLB on ListOps):

    TLB                     {}
    TLB Fixed Recurrence    chunk: {by: count, count: 5}                                        s. 6.6
    TLB, flip-flop          layers: 3, chunk: {size: 10}, memory: {slots: 10, update_layers: 2}, causal: true

Attention to memory is never causal, because memory holds only earlier chunks. The published code masks it
like the chunk itself if a chunk has as many tokens as memory has slots, as the text sets for flip-flop (its
configuration has chunks of 100). `layers.memory` describes the effects of slots that all start at zero.
"""

from dataclasses import replace
from typing import Final, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.block import Block
from trainables.layers.block_costs import (
    block_activation_bytes,
    block_flops,
    cross_attention_activation_bytes,
    cross_attention_flops,
    project_kv_flops,
)
from trainables.layers.memory import project_memory
from trainables.layers.tokens import Tokens
from trainables.recurrence.chunks import (
    FLASH_PADDED,
    Chunked,
    ChunkedSettings,
    chunks_activation_bytes,
    chunks_flops,
)
from trainables.settings import UnsharedDepth
from trainables.types import Encoded

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(ChunkedSettings):
    """Settings of the Temporal Latent Bottleneck."""

    name: Literal["tlb"] = "tlb"
    """The model's name."""
    layers: UnsharedDepth = 2
    """Number of blocks, with separate weights, run on every chunk."""


class Encoder(Chunked):
    """Encoder that runs every block once on every chunk."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config
        self.blocks = nn.ModuleList(Block(config, has_cross_attention=True) for _ in range(config.layers))

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        return self.encode(x, mask, self._layers, self.config.layers)

    def _layers(self, states: Tensor, tokens: Tokens, memory: Tensor, number: int) -> Tensor:  # noqa: ARG002 equal for all chunks
        for block in self.blocks:
            assert isinstance(block, Block)
            states = block(states, replace(tokens, cross_kv=project_memory(block, memory, tokens)))
        return states


def ungraphed(config: Config) -> str | None:
    """Return the reason why training steps cannot be captured; None if they can."""
    return FLASH_PADDED if config.attention == "flash" else None


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum number of layers run on each chunk of a sequence."""
    return config.layers, config.layers


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    slots = config.memory.slots

    def flops(chunk: int) -> float:
        recall = project_kv_flops(config, slots) + cross_attention_flops(config, chunk, slots)
        return layers * (block_flops(config, None, chunk) + recall)

    return chunks_flops(config, length, flops)


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """

    def stored_bytes(chunk: int) -> float:
        recall = cross_attention_activation_bytes(config, rows, chunk, config.memory.slots)
        return config.layers * (block_activation_bytes(config, None, rows, chunk) + recall)

    return chunks_activation_bytes(config, rows, length, stored_bytes)
