"""Sparse Universal Transformer (SUT): one shared layer of experts, repeated per token until that token halts.

Source: Tan et al., Sparse Universal Transformer, s. 3, with their released code where the text is silent:
mixtures in `layers.experts` and `layers.attention.momha`, halting in `layers.halting` with sums from the
first layer's state on. The halting gate is evaluated on a state before the next layer is run, so no computed
layer is discarded.

Published systems as settings (settings that are not listed have their defaults: the base model for
translation):

    SUT base                {}
    SUT big                 attention: {experts: 48, sampled: 1}, feedforward: {experts: 48, sampled: 1}
    SUT, logical inference  max_layers: 12, attention: {experts: 12, heads: 2, head_width: 32, window: 1},
                            feedforward: {experts: 12, width: 128}
    SUT, CFQ                attention: {experts: 1, active: 1, heads: 8, window: 1},
                            feedforward: {experts: 1, active: 1, width: 1024}
    - MIM loss              balance: switch
    - MoMHA                 attention: {experts: 96, active: 16, heads: 1}    same heads and weights
    - ACT loss              train: {ponder_weight: 0}
    - halting               halt: null
    UT + SB halting         attention: {experts: 1, active: 1}, feedforward: {experts: 1, active: 1}, with the
                            widths of all experts together

The ponder cost of a token is its expected number of layers, including the remaining mass. For a token that
runs all L layers it is that of the released code plus one. For a token that halted on state K < L, the
released code adds further charges. With a_j the probability of halting on state j, and r <= 1 - threshold the
mass that remains after a_K, it charges j - 1 for each later a_j, the sum of which is at most r. This model
charges K for r:

    ours - 1 - released = r (K - 1) - sum_{K < j < L} a_j (j - 1),    at most (1 - threshold) (L - 2) in size,

which is 0.004 layers per token in the base model, and 0.01 with L = 12. The auxiliary cost belongs to a
batch, so it is the same for every row; the released code divides both costs again by the number of tokens of
a batch.

The paper does not mention experts that are sampled in training. The released script for the big model samples
them, the one for the base model does not.

Departures: tokens are between START and END as in all encoders here, and the embedded input is scaled by
sqrt(width). Routers of a single expert are left out. Windows are as set; the released code has 63. Sinusoids
alternate and are counted from 0; `position_layout: halves` has those of the released code.
"""

from dataclasses import replace
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.block_costs import FLOAT_BYTES
from trainables.layers.boundaries import boundaries, positions
from trainables.layers.packing import pack
from trainables.layers.tokens import KeysValues, Tokens
from trainables.models._sut import (
    FinalNorm,
    SparseLayer,
    SparseSettings,
    begin,
    depth_recurrence,
    halting_flops,
    halting_gate,
    layer_activation_bytes,
    layer_flops,
    project_kv_flops,
    run_to_halt,
    sparse_depth_range,
    states_between_layers,
)
from trainables.recurrence.decoding_state import DecodingState, StepwiseDecoder
from trainables.recurrence.result import decoder_output
from trainables.recurrence.stepwise import extend_by_one_token
from trainables.types import Encoded


class Config(SparseSettings):
    """Settings of the Sparse Universal Transformer."""

    name: Literal["sut"] = "sut"
    """The model's name."""


class Encoder(nn.Module):
    """Encoder that repeats one sparse layer until every token has halted."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = boundaries(config.width, present=not config.causal)
        self.block = SparseLayer(config)
        self.halt = halting_gate(config)
        self.final_norm = FinalNorm(config)

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        config = self.config
        states, packing = self.boundaries(x * config.width**0.5, mask)
        tokens = Tokens.unrotated(packing, causal=config.causal)
        units = begin(config, states, packing.column, packing.width)
        result, auxiliary = run_to_halt(config, self.block, self.halt, units, tokens)
        result = replace(result, states=self.final_norm(result.states))
        pooling, bound = config.pooling, config.max_layers
        encoded = result.encoded(self.boundaries, packing, x, pooling=pooling, bound=bound)
        return replace(encoded, auxiliary=_repeat_for_rows(auxiliary, encoded.depth))


class Decoder(StepwiseDecoder):
    """Decoder that repeats one sparse layer on an answer, with attention to the full encoded input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_layers = config.max_layers
        self.config = config
        self.block = SparseLayer(config, has_cross_attention=True)
        self.halt = halting_gate(config)
        self.final_norm = FinalNorm(config)

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
        config = self.config
        states, packing = pack(y * config.width**0.5, y_mask)
        tokens = replace(
            Tokens.unrotated(packing, causal=True),
            cross_kv=self.cross_kv(memory, memory_mask)[0],
        )
        units = begin(config, states, packing.column, packing.width)
        result, auxiliary = run_to_halt(config, self.block, self.halt, units, tokens)
        result = replace(result, states=self.final_norm(result.states))
        output = decoder_output(result, packing, y, config.max_layers)
        return replace(output, auxiliary=_repeat_for_rows(auxiliary, output.depth))

    def extend(
        self, y: Float[Tensor, "R D"], decoding: DecodingState
    ) -> tuple[Float[Tensor, "R D"], DecodingState]:
        """Return the state of one more token in each answer, as in `forward`, and the new decoding state."""
        config, tokens = self.config, decoding.unrotated(y)
        states = begin(config, y * config.width**0.5, tokens.position, decoding.length_max)
        states, decoding = extend_by_one_token(
            self.block, depth_recurrence(config, self.block, self.halt), states, tokens, decoding
        )
        return self.final_norm(states), decoding

    def cross_kv(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Return keys and values of the inputs for all layers."""
        assert self.block.recall is not None
        return [self.block.recall.project_kv(*pack(memory, memory_mask))]


def _repeat_for_rows(cost: Float[Tensor, ""] | None, like: Float[Tensor, " N"]) -> Float[Tensor, " N"] | None:
    """Return the cost of the full batch as a vector with the same cost for each row."""
    return None if cost is None else cost.expand(like.shape)


memory_length = positions
states_between = states_between_layers


def batch_cost(config: Config) -> str | None:
    """Return the name of the cost computed for a whole batch (expert balance); None if there is none."""
    has_choice = max(config.attention.experts, config.feedforward.experts) > 1
    return "the balance of experts" if has_choice and config.balance != "none" else None


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum mean number of layers run on the tokens of a sequence."""
    return sparse_depth_range(config)


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    tokens = positions(config, length)
    return layers * layer_flops(config, tokens) + halting_flops(config, tokens, layers)


def decoder_flops(config: Config, length: int, memory_length: int, layers: int) -> float:
    """Return the decoder FLOPs of an answer of `length` tokens on which `layers` layers are run."""
    flops = layers * layer_flops(config, length, memory_length) + halting_flops(config, length, layers)
    return project_kv_flops(config, memory_length) + flops


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass if nothing halts early.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    return config.max_layers * layer_activation_bytes(config, rows, positions(config, length))


def decoder_activation_bytes(config: Config, rows: int, length: int, memory_length: int) -> float:
    """Return the activation bytes that the decoder keeps for `rows` answers of `length` tokens."""
    project_memory = (
        rows * memory_length * (config.width + 2 * config.attention.heads * config.attention.head_width)
    )
    return FLOAT_BYTES * project_memory + config.max_layers * layer_activation_bytes(
        config, rows, length, memory_length
    )
