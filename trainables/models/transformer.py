"""Transformer with xPos: `layers` blocks with separate weights, bidirectional or causal.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 and App. A.
Pre-norm blocks without a final norm, as in the published runs; by default the readout uses the mean over
START, tokens and END. The causal form, as in the published flip-flop runs, has neither START nor END.

The decoder is not in that paper. It follows Vaswani et al., Attention Is All You Need, s. 3.1. It has as many
blocks as the encoder, causal and with cross-attention to the encoded input. A final norm follows, which tied
embeddings require after pre-norm blocks. Only self-attention has positions.
"""

from dataclasses import replace
from typing import Final, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.block import Block, BlockSettings
from trainables.layers.block_costs import (
    block_activation_bytes,
    block_flops,
    cross_attention_layer_bytes,
    cross_attention_layer_flops,
    project_kv_flops,
)
from trainables.layers.boundaries import PooledSettings, Pooling, boundaries, positions
from trainables.layers.linear import LayerNorm
from trainables.layers.packing import pack
from trainables.layers.tokens import KeysValues, Tokens
from trainables.recurrence.decoding_state import DecodingState, StepwiseDecoder
from trainables.recurrence.result import RecurrenceResult, decoder_output
from trainables.settings import AnswerSettings, UnsharedDepth
from trainables.types import Encoded

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(BlockSettings, PooledSettings, AnswerSettings):
    """Settings of the Transformer."""

    name: Literal["transformer"] = "transformer"
    """The model's name."""
    layers: UnsharedDepth = 4
    """Number of blocks, also in the decoder."""
    pooling: Pooling = "mean"
    """Representation of a sequence, as in the other models; by default the mean over all states."""


class Encoder(nn.Module):
    """Encoder that runs every block once."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = boundaries(config.width, present=not config.causal)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        states, packing = self.boundaries(x, mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=self.config.causal)
        for block in self.blocks:
            assert isinstance(block, Block)
            states = block(states, tokens)
        result = RecurrenceResult.of_all(states, packing, self.config.layers)
        pooling, bound = self.config.pooling, self.config.layers
        return result.encoded(self.boundaries, packing, x, pooling=pooling, bound=bound)


class Decoder(StepwiseDecoder):
    """Decoder that runs every block once on an answer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_layers = config.layers
        self.config = config
        self.blocks = nn.ModuleList(Block(config, has_cross_attention=True) for _ in range(config.layers))
        self.final_norm = LayerNorm(config.width)

    def forward(
        self,
        y: Float[Tensor, "N T D"],
        y_mask: Bool[Tensor, "N T"],
        memory: Float[Tensor, "N P D"],
        memory_mask: Bool[Tensor, "N P"],
    ) -> Encoded:
        """Return states of answers; each token attends to itself, earlier tokens and all of `memory`.

        Args:
            y: Right-padded embedded answers, (batch, answer length, width).
            y_mask: True at tokens of the answers.
            memory: Encoded inputs, (batch, positions, width).
            memory_mask: True at valid positions of the inputs.
        """
        states, packing = pack(y, y_mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=True)
        for block, cross_kv in zip(self.blocks, self.cross_kv(memory, memory_mask), strict=True):
            assert isinstance(block, Block)
            states = block(states, replace(tokens, cross_kv=cross_kv))
        result = RecurrenceResult.of_all(self.final_norm(states), packing, self.config.layers)
        return decoder_output(result, packing, y, self.config.layers)

    def extend(
        self, y: Float[Tensor, "R D"], decoding: DecodingState
    ) -> tuple[Float[Tensor, "R D"], DecodingState]:
        """Return the state of one more token in each answer, as in `forward`, and the new decoding state."""
        states, layers = y, list(decoding.layers)
        tokens = decoding.tokens(self.config.size_of_head, y)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            layers[number] = layers[number].with_token(block.keys_values(states, tokens))
            states = block(
                states, replace(tokens, cross_kv=decoding.cross_kv[number]), layers[number].keys_values
            )
        return self.final_norm(states), replace(decoding, layers=tuple(layers), length=decoding.length + 1)

    def cross_kv(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Return keys and values of the inputs for each block."""
        states, packing = pack(memory, memory_mask)
        cross_kv = []
        for block in self.blocks:
            assert isinstance(block, Block)
            assert block.recall is not None
            cross_kv.append(block.recall.project_kv(states, packing))
        return cross_kv


memory_length = positions


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum number of layers run on a sequence."""
    return config.layers, config.layers


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    return layers * block_flops(config, None, positions(config, length))


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    return config.layers * block_activation_bytes(config, None, rows, positions(config, length))


def decoder_flops(config: Config, length: int, memory_length: int, layers: int) -> float:
    """Return the decoder FLOPs of an answer of `length` tokens on which `layers` layers are run."""
    block = cross_attention_layer_flops(config, None, length, memory_length)
    return layers * (block + project_kv_flops(config, memory_length))


def decoder_activation_bytes(config: Config, rows: int, length: int, memory_length: int) -> float:
    """Return the activation bytes that the decoder keeps for `rows` answers of `length` tokens."""
    return config.layers * cross_attention_layer_bytes(config, None, rows, length, memory_length)
