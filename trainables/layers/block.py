"""The Transformer block of all built-in models: pre-norm, xPos attention, with or without a gate.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 (plain) and
9-11 (gated). Two details are not in their text and follow their runs. The inner dropout of a feed-forward is
before the GELU. The gate's last dropout is on its logit, so that a dropped gate is half open.
"""

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention.attend import Backend, WeightDropout, attend_packed, attend_within_rows
from trainables.layers.dropout import DropoutGroup, KeyedDropout, drop_both
from trainables.layers.linear import LayerNorm, Linear, XavierLinear, join_weights
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, PlacedVectors, Tokens
from trainables.layers.xpos import BOTH, KEYS, QUERIES
from trainables.settings import HeadSettings, Small


class BlockSettings(HeadSettings):
    """Sizes and rates of a block."""

    rotates: ClassVar[bool] = True
    """Whether queries and keys are rotated by their positions."""
    head_width: int | None = Field(default=None, ge=1)
    """Size of one head; `width / heads` if not given. It must be even if positions rotate heads. heads *
    head_width may differ from width."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of attention weights dropped."""
    attention: Annotated[Backend, Small("auto", "math")] = "auto"
    """Attention kernel: auto, sdpa, flash (needs CUDA and `train.precision` bf16 or fp16) or math."""

    @model_validator(mode="after")
    def _pairs_can_be_rotated(self) -> "BlockSettings":
        if self.rotates and self.size_of_head % 2:
            raise ValueError(
                f"head_width must be even, because positions rotate pairs of dimensions,"
                f" got {self.size_of_head} (width={self.width}, heads={self.heads})"
            )
        return self


class _Heads(nn.Module):
    """Base of multi-head attention without biases."""

    def __init__(self, config: BlockSettings) -> None:
        super().__init__()
        inner = config.heads * config.size_of_head
        self.query = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.key = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.value = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.output = XavierLinear(inner, config.width, bias=False)
        self.weight_dropout = KeyedDropout(config.attention_dropout)
        self.output_dropout = KeyedDropout(config.dropout, config.width)
        self.heads = config.heads
        self.backend: Backend = config.attention

    def _project(
        self, z: Float[Tensor, "M D"], placed_tokens: PlacedVectors | None, *maps: nn.Linear
    ) -> Float[Tensor, "M P H E"]:
        """Return the results of several maps of `z`, computed as one product.

        The joint weight is computed once for the pass of `placed_tokens`, if given.
        """
        weight: Tensor = maps[0].weight
        if len(maps) > 1:

            def join() -> Tensor:
                return join_weights(*(linear_map.weight for linear_map in maps))

            weight = join() if placed_tokens is None else placed_tokens.get_cached(maps, join)
        return F.linear(z, weight).view(z.shape[0], len(maps), self.heads, -1)

    def _attend(
        self,
        queries: Tensor,
        tokens: PlacedVectors,
        keys_values: KeysValues,
        num_visible: Int[Tensor, " M"] | None,
    ) -> Float[Tensor, "M H E"]:
        dropout = self._make_dropout(tokens)
        return attend_packed(
            queries.squeeze(1),
            keys_values,
            tokens.packing,
            num_visible=num_visible,
            dropout=dropout,
            backend=self.backend,
        )

    def _project_output(
        self, gathered: Float[Tensor, "M H E"], tokens: PlacedVectors, residual: Float[Tensor, "M D"] | None
    ) -> Float[Tensor, "M D"]:
        result: Tensor = self.output_dropout(self.output(gathered.flatten(1)), tokens.place, residual)
        return result

    def _make_dropout(self, tokens: PlacedVectors) -> WeightDropout | None:
        dropout = self.weight_dropout
        return WeightDropout(dropout, dropout.draw(), tokens.padded_place) if dropout.active else None


class CrossAttention(_Heads):
    """Attention to unordered rows of vectors: without rotary positions, never causal."""

    def project_kv(
        self, z: Float[Tensor, "M D"], packing: Packing, placed_tokens: PlacedVectors | None = None
    ) -> KeysValues:
        """Return keys and values of rows of normed vectors `z`; `placed_tokens` identifies the pass."""
        return KeysValues(self._project(z, placed_tokens, self.key, self.value), packing)

    def forward(
        self,
        z: Float[Tensor, "M D"],
        placed_tokens: PlacedVectors,
        keys_values: KeysValues,
        residual: Float[Tensor, "M D"] | None = None,
    ) -> Float[Tensor, "M D"]:
        """Return the attention output of each vector over its row, added to `residual` if given.

        Args:
            z: Normed vectors of the queries, (tokens, width).
            placed_tokens: Packing and places of the queries.
            keys_values: Keys and values.
            residual: Residual, (tokens, width).
        """
        gathered = self._attend(
            self._project(z, placed_tokens, self.query), placed_tokens, keys_values, num_visible=None
        )
        return self._project_output(gathered, placed_tokens, residual)


class Attention(_Heads):
    """Attention of tokens within each row; queries and keys are rotated by xPos."""

    def keys_values(self, z: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return rotated keys, and values, of `tokens` with normed states `z`."""
        return KeysValues(tokens.rotate(self._project(z, tokens, self.key, self.value), KEYS), tokens.packing)

    def forward(
        self,
        z: Float[Tensor, "M D"],
        tokens: Tokens,
        keys_values: KeysValues | None = None,
        residual: Float[Tensor, "M D"] | None = None,
    ) -> Float[Tensor, "M D"]:
        """Return the attention output of each token, added to `residual` if given.

        Args:
            z: Normed states of the tokens, (tokens, width).
            tokens: Packing, rotations and range of the tokens.
            keys_values: Keys and values to attend to; None: those of `tokens`.
            residual: Residual, (tokens, width).
        """
        if keys_values is None:
            qkv = tokens.rotate(self._project(z, tokens, self.query, self.key, self.value), BOTH)
            gathered = attend_within_rows(
                qkv,
                tokens.packing,
                num_visible=tokens.num_visible,
                dropout=self._make_dropout(tokens),
                backend=self.backend,
            )
        else:
            queries = tokens.rotate(self._project(z, tokens, self.query), QUERIES)
            gathered = self._attend(queries, tokens, keys_values, tokens.num_visible)
        return self._project_output(gathered, tokens, residual)


class FeedForward(nn.Module):
    """Feed-forward Drop(W2 GELU(Drop(W1 z + b1)) + b2)."""

    def __init__(
        self, width: int, inner: int, dropout: float, linear: type[XavierLinear | Linear] = XavierLinear
    ) -> None:
        super().__init__()
        self.inner = linear(width, inner)
        self.outer = linear(inner, width)
        self.inner_dropout = KeyedDropout(dropout, inner)
        self.outer_dropout = KeyedDropout(dropout, width)

    def forward(
        self,
        z: Float[Tensor, "M D"],
        placed_tokens: PlacedVectors,
        residual: Float[Tensor, "M D"] | None = None,
    ) -> Float[Tensor, "M D"]:
        """Return the feed-forward of each vector, added to `residual` if given."""
        inner = F.gelu(self.inner_dropout(self.inner(z), placed_tokens.place))
        return self.project_out(inner, placed_tokens, residual)

    def project_out(
        self,
        inner: Float[Tensor, "M I"],
        placed_tokens: PlacedVectors,
        residual: Float[Tensor, "M D"] | None = None,
    ) -> Float[Tensor, "M D"]:
        """Return the output of the hidden layer `inner`, added to `residual` if given."""
        result: Tensor = self.outer_dropout(self.outer(inner), placed_tokens.place, residual)
        return result


def run_both(
    first: FeedForward,
    second: FeedForward,
    z: Float[Tensor, "M D"],
    placed_tokens: PlacedVectors,
    residual: Float[Tensor, "M D"],
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """Run two feed-forwards on the same vectors, and add `residual` to the result of `first`.

    Their hidden layers are computed as one product.
    """
    layers, dropouts = (first.inner, second.inner), (first.inner_dropout, second.inner_dropout)
    weight, bias = placed_tokens.get_cached(
        layers,
        lambda: (
            join_weights(*(layer.weight for layer in layers)),
            join_weights(*(layer.bias for layer in layers)),
        ),
    )
    inner = F.gelu(drop_both(dropouts, F.linear(z, weight, bias), placed_tokens.place))
    first_hidden, second_hidden = inner.split_with_sizes([layer.out_features for layer in layers], 1)
    return first.project_out(first_hidden, placed_tokens, residual), second.project_out(
        second_hidden, placed_tokens
    )


class Block(RecomputableLayer):
    """One layer; with `gate_width` its result is mixed with its input by a learned gate.

    With `has_cross_attention` it attends to its own row, then to `Tokens.cross_kv` (Alg. 2 and 4). The
    feed-forwards of such layers start from PyTorch's default distribution, as in the published runs.
    """

    def __init__(
        self, config: BlockSettings, gate_width: int | None = None, *, has_cross_attention: bool = False
    ) -> None:
        super().__init__()
        width, linear = config.width, Linear if has_cross_attention else XavierLinear
        self.attention_norm = LayerNorm(width)
        self.attention = Attention(config)
        self.recall = NormedCrossAttention(config) if has_cross_attention else None
        self.feedforward_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, config.size_of_feedforward, config.dropout, linear)
        self.gate = None if gate_width is None else FeedForward(width, gate_width, config.dropout, linear)
        self.dropouts = DropoutGroup(self)

    def keys_values(self, x: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return keys and values of `tokens`, projected from states `x` after the norm of the queries."""
        return self.attention.keys_values(self.attention_norm(x), tokens)

    def forward(
        self, x: Float[Tensor, "M D"], tokens: Tokens, keys_values: KeysValues | None = None
    ) -> Float[Tensor, "M D"]:
        """Return the states of `tokens` after this layer.

        Args:
            x: States before the layer, (tokens, width).
            tokens: Packing, places, rotations and range of the tokens.
            keys_values: Keys and values to attend to; None: those of `tokens`.
        """
        self.dropouts.draw(tokens.place)
        z = self.attention_norm(x)
        attended: Tensor = self.attention(z, tokens, keys_values, x)
        if self.recall is not None:
            assert tokens.cross_kv is not None
            attended = self.recall(attended, tokens.cross_placed, tokens.cross_kv)
        z = self.feedforward_norm(attended)
        if self.gate is None:
            result: Tensor = self.feedforward(z, tokens, attended)
            return result
        proposed, opening = run_both(self.feedforward, self.gate, z, tokens, attended)
        return torch.addcmul(x, opening.sigmoid(), proposed - x)


class NormedCrossAttention(nn.Module):
    """Cross-attention with one norm for queries and another for keys and values."""

    def __init__(self, config: BlockSettings) -> None:
        super().__init__()
        self.query_norm = LayerNorm(config.width)
        self.source_norm = LayerNorm(config.width)
        self.attention = CrossAttention(config)

    def project_kv(
        self, x: Float[Tensor, "M D"], packing: Packing, placed_tokens: PlacedVectors | None = None
    ) -> KeysValues:
        """Return keys and values of rows of vectors `x`; `placed_tokens` identifies the pass."""
        return self.attention.project_kv(self.source_norm(x), packing, placed_tokens)

    def forward(
        self, x: Float[Tensor, "M D"], placed_tokens: PlacedVectors, keys_values: KeysValues
    ) -> Float[Tensor, "M D"]:
        """Return each vector in `x` plus its attention output over its row of `keys_values`."""
        result: Tensor = self.attention(self.query_norm(x), placed_tokens, keys_values, x)
        return result
