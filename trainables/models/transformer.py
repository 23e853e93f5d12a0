"""Transformer with xPos: `layers` blocks with weights of their own, bidirectional or causal.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 and App. A.
Pre-norm blocks without a final norm, as in the published runs; reads the mean over START, tokens and END.
The causal form, as in the published flip-flop runs, has neither START nor END.

The decoder is ours, after Vaswani et al., Attention Is All You Need, s. 3.1: as many causal blocks of the
same kind, each with cross-attention to the encoded input, and a norm at the end, which tied embeddings need
to read from pre-norm blocks. Only self-attention has positions.
"""

from dataclasses import replace
from typing import Final, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.block import Block, BlockSettings
from trainables.layers.block_costs import (
    block_flops,
    block_saved_bytes,
    offer_flops,
    recalling_flops,
    recalling_saved_bytes,
)
from trainables.layers.boundaries import PooledSettings, Pooling, boundaries, positions
from trainables.layers.linear import LayerNorm
from trainables.layers.packing import packed
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.decoding_state import DecodingState, StepwiseDecoder
from trainables.recurrence.result import RecurrenceResult, written
from trainables.settings import AnswerSettings, UnsharedDepth
from trainables.types import Encoded

GRAPHED: Final = True
"""Its training steps can be captured as graphs (`training.graphed`)."""


class Config(BlockSettings, PooledSettings, AnswerSettings):
    """Settings of the Transformer."""

    name: Literal["transformer"] = "transformer"
    """The model's name."""
    layers: UnsharedDepth = 4
    """Number of blocks, in the decoder too."""
    pooling: Pooling = "mean"
    """What represents a sequence, as in the other models; here the mean over all, if not set."""


class Encoder(nn.Module):
    """Runs every block once."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = boundaries(config.width, present=not config.causal)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`."""
        states, packing = self.boundaries(x, mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=self.config.causal)
        for block in self.blocks:
            assert isinstance(block, Block)
            states = block(states, tokens)
        result = RecurrenceResult.of_all(states, packing, self.config.layers)
        pooling, bound = self.config.pooling, self.config.layers
        return result.encoded(self.boundaries, packing, x, pooling=pooling, bound=bound)


class Decoder(StepwiseDecoder):
    """Runs every block once on an answer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_layers = config.layers
        self.config = config
        self.blocks = nn.ModuleList(Block(config, recalls=True) for _ in range(config.layers))
        self.final_norm = LayerNorm(config.width)

    def forward(
        self,
        y: Float[Tensor, "N T D"],
        y_mask: Bool[Tensor, "N T"],
        memory: Float[Tensor, "N P D"],
        memory_mask: Bool[Tensor, "N P"],
    ) -> Encoded:
        """States of right-padded answers `y`: each token sees those before it and all of `memory`."""
        states, packing = packed(y, y_mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=True)
        for block, recalled in zip(self.blocks, self.recalled(memory, memory_mask), strict=True):
            assert isinstance(block, Block)
            states = block(states, replace(tokens, recalled=recalled))
        result = RecurrenceResult.of_all(self.final_norm(states), packing, self.config.layers)
        return written(result, packing, y, self.config.layers)

    def extend(
        self, y: Float[Tensor, "R D"], decoding: DecodingState
    ) -> tuple[Float[Tensor, "R D"], DecodingState]:
        """State of one more token in each answer, as in `forward`, and the new decoding state."""
        states, layers = y, list(decoding.layers)
        tokens = decoding.tokens(self.config.size_of_head, y)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            layers[number] = layers[number].with_token(block.keys_values(states, tokens))
            states = block(states, replace(tokens, recalled=decoding.recalled[number]), layers[number].seen)
        return self.final_norm(states), replace(decoding, layers=tuple(layers), length=decoding.length + 1)

    def recalled(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Keys and values of the inputs for each block."""
        states, packing = packed(memory, memory_mask)
        recalled = []
        for block in self.blocks:
            assert isinstance(block, Block)
            assert block.recall is not None
            recalled.append(block.recall.offer(states, packing))
        return recalled


memory_length = positions


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Least and greatest number of layers run on a sequence."""
    return config.layers, config.layers


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    return layers * block_flops(config, None, positions(config, length))


def saved_bytes(config: Config, rows: int, length: int) -> float:
    """Activation bytes that a forward pass on `rows` sequences of `length` tokens keeps for the backward
    pass."""
    return config.layers * block_saved_bytes(config, None, rows, positions(config, length))


def decoder_flops(config: Config, length: int, memory_length: int, layers: int) -> float:
    """Decoder FLOPs of an answer of `length` tokens on which `layers` layers are run."""
    block = recalling_flops(config, None, length, memory_length)
    return layers * (block + offer_flops(config, memory_length))


def decoder_saved_bytes(config: Config, rows: int, length: int, memory_length: int) -> float:
    """Activation bytes that the decoder keeps for the backward pass of `rows` answers of `length` tokens."""
    return config.layers * recalling_saved_bytes(config, None, rows, length, memory_length)
