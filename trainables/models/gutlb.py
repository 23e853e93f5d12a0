"""Gated Universal Transformer Latent Bottleneck (GUTLB): a gated block repeated on each chunk until it halts.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Alg. 4: the
recursion of GUT (`models.universal`, with all its settings) inside the loop over chunks of TLB
(`models.tlb`). Halting restarts in every chunk; its mixture of states updates the memory. Depth and ponder
cost of a sequence are means over its chunks.

Published systems as settings (settings that are not listed have their defaults: GUTLB on ListOps):

    GUTLB               {}
    GUTLB, flip-flop    max_layers: 10, chunk: {size: 10}, memory: {slots: 10, update_layers: 2}, causal: true

Alg. 4 prints H in the gate, where it must be the input of the chunk's layer. In the causal form, means over
the positions so far restart in every chunk.
"""

from dataclasses import replace
from typing import Final, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from trainables.layers.block import Block
from trainables.layers.block_costs import (
    block_activation_bytes,
    block_flops,
    cross_attention_activation_bytes,
    cross_attention_flops,
    project_kv_flops,
)
from trainables.layers.dropout import skip_dropout_calls
from trainables.layers.memory import project_memory
from trainables.layers.tokens import Tokens
from trainables.models._universal import (
    UniversalSettings,
    halting_activation_bytes,
    halting_flops,
    halting_function,
    most_recurrent_layers,
    recurrent_depth_range,
    run_all,
    run_to_halt,
    states_between_layers,
)
from trainables.recurrence.chunks import (
    FLASH_PADDED,
    Chunked,
    ChunkedSettings,
    chunks_activation_bytes,
    chunks_flops,
)
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import SharedDepth
from trainables.types import Encoded

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(ChunkedSettings, UniversalSettings):
    """Settings of the universal family over chunks."""

    name: Literal["gutlb"] = "gutlb"
    """The model's name."""
    max_layers: SharedDepth = 5
    """Maximum number of layers in each chunk; the exact number if nothing halts."""


class Encoder(Chunked):
    """Encoder that repeats one block on every chunk until all its units have halted."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config
        self.block = Block(config, config.size_of_gate, has_cross_attention=True)
        self.halt = halting_function(config)

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        return self.encode(x, mask, self._layers, self.config.max_layers)

    def _layers(
        self, states: Tensor, tokens: Tokens, memory: Tensor, number: int
    ) -> RecurrenceResult | Tensor:
        # The number of layers run on earlier chunks depends on the batch and on early exit.
        skip_dropout_calls(self.block, number * self.config.max_layers)
        layer_tokens = replace(tokens, cross_kv=project_memory(self.block, memory, tokens))
        if self.config.halt is None:
            return run_all(self.config, self.block, states, layer_tokens)
        return run_to_halt(self.config, self.block, self.halt, states, layer_tokens)


states_between = states_between_layers


def ungraphed(config: Config) -> str | None:
    """Return the reason why training steps cannot be captured; None if they can."""
    return FLASH_PADDED if config.attention == "flash" else None


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum mean number of layers run on the chunks of a sequence.

    Undone steps are included.
    """
    return recurrent_depth_range(config)


def most_layers(config: Config, length: int) -> int:
    """Return the maximum number of layers run on a chunk of a sequence of `length` tokens."""
    return most_recurrent_layers(config, max(config.chunk_lengths(length)))


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens with `layers` layers run on every chunk."""
    slots = config.memory.slots

    def flops(chunk: int) -> float:
        layer = block_flops(config, config.size_of_gate, chunk) + cross_attention_flops(config, chunk, slots)
        return project_kv_flops(config, slots) + layers * layer + halting_flops(config, chunk, layers)

    return chunks_flops(config, length, flops)


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass if nothing halts early.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """

    def stored_bytes(chunk: int) -> float:
        block = block_activation_bytes(config, config.size_of_gate, rows, chunk)
        recall = cross_attention_activation_bytes(config, rows, chunk, config.memory.slots)
        return config.max_layers * (block + recall + halting_activation_bytes(config, rows, chunk))

    return chunks_activation_bytes(config, rows, length, stored_bytes)
