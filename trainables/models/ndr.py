"""Neural Data Router (NDR): one shared layer of geometric attention with a copy gate.

Source: Csordas, Irie and Schmidhuber, The Neural Data Router, as run in Ray Chowdhury and Caragea, On the
Design Space Between Transformers and Recursive Neural Nets, s. 3 and 7:

    X  = LN(H + Drop(Attention(H)))
    H' = G * LN(W2 Drop(ReLU(W1 X))) + (1 - G) * H          G = sigmoid(Wg2 Drop(ReLU(Wg1 X)))

The gate starts nearly closed (bias -3). In training, the full gate of each position is set to zero with
probability `gate_dropout`. There is no halting: `layers` steps are run in training and `test_layers` in every
evaluation, including validation, as in the published runs.

Published systems as settings (settings that are not listed have their defaults):

    NDR of Ray Chowdhury and Caragea            {}
    NDR as first published (ListOps)            normalise_rows: false, pooling: start
    - geometric attention                       geometric: false, proposal: tanh, gate_dropout: 0.0
    - gate (a shared geometric Transformer)     gate: false

`geometric: false` alone changes only the attention. The released layer of relative attention also has
tanh(W2 Drop(ReLU(W1 X))) instead of the layer norm, and no gate dropout. Its initial distributions differ: W2
is uniform in +-1/sqrt(inputs), and queries, keys and values are Xavier-uniform as full matrices. Here, parts
that arms share start from the same weights, those of the geometric layer. W2 therefore starts in the same way
without the gate, where a layer is X, then LN(X + Drop(W2 Drop(ReLU(W1 X)))).
"""

from typing import Annotated, Final, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention.geometric import GeometricAttention, RelativeAttention, RoutingAttention
from trainables.layers.block_costs import FLOAT_BYTES, linear_flops
from trainables.layers.boundaries import NUM_BOUNDARIES, Boundaries
from trainables.layers.dropout import DropoutGroup, KeyedDropout
from trainables.layers.linear import LayerNorm, XavierLinear
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import packed_places
from trainables.recurrence.result import RecurrenceResult
from trainables.settings import HeadSettings, SharedDepth, Small
from trainables.types import Encoded

GATE_BIAS = -3.0
RELU_GAIN = 2**0.5
TANH_GAIN = 5 / 3

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(HeadSettings):
    """Settings of the Neural Data Router."""

    name: Literal["ndr"] = "ndr"
    """The model's name."""
    layers: SharedDepth = 20
    """Number of steps in training."""
    test_layers: Annotated[SharedDepth, Small(7)] = 24
    """Number of steps in every evaluation."""
    heads: int = Field(default=16, ge=1)
    """Number of attention heads."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements of keys dropped."""
    readout_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of elements dropped from the input of the readout, and again inside it, as in the second
    source."""
    geometric: bool = True
    """Attention to the nearest match; otherwise a softmax over content and positions, with a gate between
    relative and absolute positions."""
    direction: bool = True
    """Queries can prefer earlier or later positions. No effect on relative attention."""
    normalise_rows: bool = True
    """Divide geometric attention by its sum. Relative attention always sums to one."""
    gate: bool = True
    """Copy gate: mix each proposed state with the previous state, so that states can be copied unchanged."""
    proposal: Literal["norm", "tanh"] = "norm"
    """Bound of the states proposed to the gate: a layer norm, or tanh as in the released layer of relative
    attention."""
    gate_dropout: float = Field(default=0.05, ge=0, lt=1)
    """Share of positions whose gate is set to zero in training. No effect without a gate."""
    pooling: Literal["end", "start"] = "end"
    """Representation of a sequence: the state at END or START."""

    @model_validator(mode="after")
    def _something_is_proposed(self) -> "Config":
        if not self.gate and self.proposal != "norm":
            raise ValueError(
                f"proposal must be norm if there is no gate, got gate=False and"
                f" proposal={self.proposal!r}; drop it or set gate: true"
            )
        return self


class ReluFeedForward(nn.Module):
    """Feed-forward W2 Drop(ReLU(W1 x + b1)) + b2."""

    def __init__(
        self, width: int, inner: int, dropout: float, *, gain: float, bias_mean: float | None = None
    ) -> None:
        super().__init__()
        self.inner = XavierLinear(width, inner, gain=RELU_GAIN, bias_mean=None)
        self.outer = XavierLinear(inner, width, gain=gain, bias_mean=bias_mean)
        self.inner_dropout = KeyedDropout(dropout, inner)

    def forward(self, x: Float[Tensor, "M D"], positions: Int[Tensor, " M"]) -> Float[Tensor, "M D"]:
        """Apply the feed-forward to each token."""
        result: Tensor = self.outer(self.inner_dropout(F.relu(self.inner(x)), positions))
        return result


class RouterLayer(RecomputableLayer):
    """The layer that the encoder repeats: geometric or relative attention, feed-forward and copy gate."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner, dropout = config.width, config.size_of_feedforward, config.dropout
        self.attention = _attention(config)
        self.attention_dropout = KeyedDropout(dropout, width)
        self.attention_norm = LayerNorm(width)
        self.feedforward = ReluFeedForward(width, inner, dropout, gain=TANH_GAIN)
        self.feedforward_norm = LayerNorm(width) if config.proposal == "norm" else None
        self.feedforward_dropout = KeyedDropout(0.0 if config.gate else dropout, width)
        self.gate = (
            ReluFeedForward(width, width, dropout, gain=1.0, bias_mean=GATE_BIAS) if config.gate else None
        )
        self.gate_dropout = KeyedDropout(config.gate_dropout)
        self.dropouts = DropoutGroup(self)

    def forward(
        self, h: Float[Tensor, "M D"], packing: Packing, positions: Int[Tensor, " M"]
    ) -> Float[Tensor, "M D"]:
        """Return the states after one step."""
        self.dropouts.draw(positions)
        x = self.attention_norm(self.attention_dropout(self.attention(h, packing, positions), positions, h))
        proposed = self.feedforward(x, positions)
        if self.gate is None:
            return self._bound_proposal(self.feedforward_dropout(proposed, positions, x))
        gate = self._drop_gates(self.gate(x, positions).sigmoid(), positions)
        return torch.addcmul(h, gate, self._bound_proposal(proposed) - h)

    def _bound_proposal(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
        return x.tanh() if self.feedforward_norm is None else self.feedforward_norm(x)

    def _drop_gates(self, gate: Tensor, positions: Tensor) -> Tensor:
        """Set the gates of randomly chosen positions to zero; all other gates are not rescaled."""
        if not self.gate_dropout.active:
            return gate
        dropout, key = self.gate_dropout, self.gate_dropout.draw()
        keep = dropout.mask(key, positions[..., None], (1,), 1)
        return gate * keep.to(gate.dtype)


def _attention(config: Config) -> RoutingAttention:
    sizes = config.width, config.heads, config.size_of_head, config.attention_dropout
    if not config.geometric:
        return RelativeAttention(*sizes)
    return GeometricAttention(*sizes, direction=config.direction, normalise=config.normalise_rows)


class Encoder(nn.Module):
    """Encoder that repeats the layer, `layers` times in training and `test_layers` times in evaluation."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = Boundaries(config.width)
        self.layer = RouterLayer(config)

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        states, packing = self.boundaries(x, mask)
        place = packed_places(packing)
        layers = self.config.layers if self.training else self.config.test_layers
        for _ in range(layers):
            states = self.layer(states, packing, place)
        result = RecurrenceResult.of_all(states, packing, layers)
        return result.encoded(self.boundaries, packing, x, pooling=self.config.pooling, bound=layers)


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum number of layers run on a sequence in training and evaluation."""
    return min(config.layers, config.test_layers), max(config.layers, config.test_layers)


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    tokens, width = length + NUM_BOUNDARIES, config.width
    inner = config.heads * config.size_of_head
    flops = 4 * linear_flops(tokens, width, inner) + 2 * linear_flops(tokens, inner, tokens)
    flops += 2 * linear_flops(tokens, width, config.size_of_feedforward + (width if config.gate else 0))
    if not config.geometric:
        offsets = 2 * tokens - 1
        flops += linear_flops(offsets, width, inner) + linear_flops(tokens, inner, offsets)
        flops += linear_flops(tokens, width, config.heads)
    elif config.direction:
        flops += linear_flops(tokens, width, 2 * config.heads)
    return layers * flops


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a training forward pass keeps for the backward pass.

    A position keeps its state, the sum and its norm, the proposal (4 width); queries, keys and values before
    and after the split into heads, and the output of attention (6 heads * head_width); two copies of each
    hidden layer; with a gate its opening, the normed proposal and its difference to the state (3 width); a
    byte for each element a dropout may drop. A pair of positions keeps, in each head, the logit of a match
    and the weight (2 numbers); relative attention keeps both kinds of scores and those of positions too (6
    numbers).

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    tokens, inner = length + NUM_BOUNDARIES, config.heads * config.size_of_head
    hidden_width = config.size_of_feedforward + (config.width if config.gate else 0)
    floats = (7 if config.gate else 4) * config.width + 6 * inner + 2 * hidden_width
    masks = config.width + hidden_width if config.dropout else 0
    pairs = config.heads * tokens * FLOAT_BYTES * (2.0 if config.geometric else 6.0)
    return config.layers * rows * tokens * (FLOAT_BYTES * floats + masks + pairs)
