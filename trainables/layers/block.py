"""The Transformer block of all built-in models: pre-norm, xPos attention, with or without a gate.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 (plain) and
9-11 (gated). Two details are not in their text and follow their runs. The inner dropout of a feed-forward is
before the GELU. The gate's last dropout is on its logit, so that a dropped gate is half open.
"""

from typing import Annotated, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention.attend import Backend, WeightDropout, attend_among, attend_packed
from trainables.layers.dropout import DropoutGroup, KeyedDropout, drop_adjacent
from trainables.layers.linear import LayerNorm, Linear, XavierLinear, joined
from trainables.layers.mask_draws import MaskDraws
from trainables.layers.packing import Packing
from trainables.layers.recomputing import RecomputableLayer
from trainables.layers.tokens import KeysValues, Placed, Tokens
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


class Maps(NamedTuple):
    """Linear maps of the same inputs, computed as one product."""

    name: tuple[nn.Module, "nn.Module | str"]
    """Key under which `Placed.once` caches the joined weights."""
    sets: tuple[tuple[Tensor, ...], ...]
    """Weights of the maps and, if they have any, their biases."""

    def join_maps(self, placed_tokens: Placed | None) -> tuple[Tensor, ...]:
        """Return the weights and biases of all maps, concatenated once for the pass of `placed_tokens`."""

        def build() -> tuple[Tensor, ...]:
            return tuple(joined(*tensors) for tensors in self.sets)

        joined_maps: tuple[Tensor, ...] = (
            build() if placed_tokens is None else placed_tokens.once(self.name, build)
        )
        return joined_maps


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

    def _gather(
        self, queries: Tensor, tokens: Placed, keys_values: KeysValues, reach: Int[Tensor, " M"] | None
    ) -> Float[Tensor, "M H E"]:
        return attend_packed(
            queries,
            keys_values,
            tokens.packing,
            reach=reach,
            drop=self._drop(tokens, keys_values.packing),
            backend=self.backend,
        )

    def _answer(
        self, gathered: Float[Tensor, "M H E"], tokens: Placed, residual: Float[Tensor, "M D"] | None
    ) -> Float[Tensor, "M D"]:
        result: Tensor = self.output_dropout(self.output(gathered.flatten(1)), tokens.place, residual)
        return result

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.heads, -1)

    def schedule(self, draws: MaskDraws, tokens: Placed, keys: Packing) -> None:
        """Schedule the dropout mask of attention weights in `draws`, unless a fused kernel draws it."""
        if self._masks_are_keyed(tokens):
            place, dropout = tokens.padded_place, self.weight_dropout
            WeightDropout.schedule(draws, dropout, place, self.heads, keys.width)

    def _masks_are_keyed(self, tokens: Placed) -> bool:
        return self.weight_dropout.active and (self.backend == "math" or not tokens.place.is_cuda)

    def _drop(self, tokens: Placed, keys: Packing) -> WeightDropout | None:
        dropout = self.weight_dropout
        if not dropout.active:
            return None
        place = tokens.padded_place
        keep = dropout.take_scheduled(place, keys.width)
        return WeightDropout(dropout, 0 if keep is not None else dropout.draw(), place, keep)


class CrossAttention(_Heads):
    """Attention to unordered rows of vectors: without rotary positions, never causal."""

    def maps(self) -> Maps:
        """Return the maps of keys and values."""
        return _keys_values(self)

    def project_kv(
        self, z: Float[Tensor, "M D"], packing: Packing, placed_tokens: Placed | None = None
    ) -> KeysValues:
        """Return keys and values of rows of normed vectors `z`; `placed_tokens` identifies the pass."""

        keys_and_values = F.linear(z, *self.maps().join_maps(placed_tokens))
        return KeysValues.from_pair(keys_and_values.view(z.shape[0], 2, self.heads, -1), packing)

    def forward(
        self,
        z: Float[Tensor, "M D"],
        placed_tokens: Placed,
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
        return self._answer(
            self._gather(self._split_heads(self.query(z)), placed_tokens, keys_values, reach=None),
            placed_tokens,
            residual,
        )


class Attention(_Heads):
    """Attention of tokens within each row; queries and keys are rotated by xPos."""

    def maps(self, *, with_queries: bool) -> Maps:
        """Return the maps of queries, keys and values.

        Without `with_queries`, return the maps of keys and values only.
        """
        if not with_queries:
            return _keys_values(self)
        return Maps((self, "qkv"), ((self.query.weight, self.key.weight, self.value.weight),))

    def keys_values(self, z: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return rotated keys, and values, of `tokens` with normed states `z`."""
        keys_and_values = F.linear(z, *self.maps(with_queries=False).join_maps(tokens))
        rotated_pairs = tokens.key_rotation.of_first(keys_and_values, self.heads).view(
            z.shape[0], 2, self.heads, -1
        )
        return KeysValues.from_pair(rotated_pairs, tokens.packing)

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
            qkv = F.linear(z, *self.maps(with_queries=True).join_maps(tokens)).view(
                z.shape[0], 3, self.heads, -1
            )
            gathered = attend_among(
                qkv, tokens, drop=self._drop(tokens, tokens.packing), backend=self.backend
            )
            return self._answer(gathered, tokens, residual)
        return self._answer(
            self._gather(self._rotate(z, tokens), tokens, keys_values, tokens.reach), tokens, residual
        )

    def _rotate(self, z: Float[Tensor, "M D"], tokens: Tokens) -> Float[Tensor, "M H E"]:
        """Return the rotated queries of `tokens`."""
        return self._split_heads(tokens.query_rotation.of_first(self.query(z), self.heads))


def _keys_values(heads: _Heads) -> Maps:
    return Maps((heads, "kv"), ((heads.key.weight, heads.value.weight),))


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
        self, z: Float[Tensor, "M D"], placed_tokens: Placed, residual: Float[Tensor, "M D"] | None = None
    ) -> Float[Tensor, "M D"]:
        """Return the feed-forward of each vector, added to `residual` if given."""
        return self.project_out(
            F.gelu(self.inner_dropout(self.inner(z), placed_tokens.place)), placed_tokens, residual
        )

    def maps_with(self, other: "FeedForward") -> Maps:
        """Return the first linear maps of this feed-forward and of `other`, to be computed as one product."""
        inner = self.inner, other.inner
        return Maps(
            (self, other), (tuple(layer.weight for layer in inner), tuple(layer.bias for layer in inner))
        )

    def project_out(
        self, inner: Float[Tensor, "M I"], placed_tokens: Placed, residual: Float[Tensor, "M D"] | None = None
    ) -> Float[Tensor, "M D"]:
        """Return the output of the hidden layer `inner`, added to `residual` if given."""
        result: Tensor = self.outer_dropout(self.outer(inner), placed_tokens.place, residual)
        return result


def run_both(
    first: FeedForward,
    other: FeedForward,
    z: Float[Tensor, "M D"],
    placed_tokens: Placed,
    residual: Float[Tensor, "M D"],
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """Run two feed-forwards on the same vectors; add `residual` to the result of `first`.

    Their hidden layers are computed as one product.
    """
    inner = F.linear(z, *first.maps_with(other).join_maps(placed_tokens))
    inner = F.gelu(drop_adjacent((first.inner_dropout, other.inner_dropout), inner, placed_tokens.place))
    first_inner, second = inner.split_with_sizes([first.inner.out_features, other.inner.out_features], 1)
    return first.project_out(first_inner, placed_tokens, residual), other.project_out(second, placed_tokens)


class Block(RecomputableLayer):
    """One layer; with `gate_width` its result is mixed with its input by a learned gate.

    A layer with `recalls` attends to `Tokens.cross_kv` after its own row (Alg. 2 and 4). The feed-forwards of
    such layers start from PyTorch's default distribution, as in the published runs.
    """

    def __init__(
        self, config: BlockSettings, gate_width: int | None = None, *, recalls: bool = False
    ) -> None:
        super().__init__()
        width, linear = config.width, Linear if recalls else XavierLinear
        self.attention_norm = LayerNorm(width)
        self.attention = Attention(config)
        self.recall = NormedCrossAttention(config) if recalls else None
        self.feedforward_norm = LayerNorm(width)
        self.feedforward = FeedForward(width, config.size_of_feedforward, config.dropout, linear)
        self.gate = None if gate_width is None else FeedForward(width, gate_width, config.dropout, linear)
        adjacent_dropouts = (
            () if self.gate is None else (self.feedforward.inner_dropout, self.gate.inner_dropout)
        )
        self.dropouts = DropoutGroup.within(self, adjacent_dropouts)

    def keys_values(self, x: Float[Tensor, "M D"], tokens: Tokens) -> KeysValues:
        """Return keys and values of `tokens`, projected from states `x` after the norm of the queries."""
        return self.attention.keys_values(self.attention_norm(x), tokens)

    def _draw(self, tokens: Tokens, keys: Packing) -> None:
        """Draw the masks of this pass, in which `tokens` attend to `keys` and to `tokens.cross_kv`."""
        draws = MaskDraws()
        self.dropouts.schedule(draws, tokens.place)
        self.attention.schedule(draws, tokens, keys)
        if self.recall is not None:
            assert tokens.cross_kv is not None
            self.recall.attention.schedule(draws, tokens.cross_placed, tokens.cross_kv.packing)
        draws.run()

    def forward(
        self, x: Float[Tensor, "M D"], tokens: Tokens, keys_values: KeysValues | None = None
    ) -> Float[Tensor, "M D"]:
        """Return the states of `tokens` after this layer.

        Args:
            x: States before the layer, (tokens, width).
            tokens: Packing, places, rotations and range of the tokens.
            keys_values: Keys and values to attend to; None: those of `tokens`.
        """
        self._draw(tokens, tokens.packing if keys_values is None else keys_values.packing)
        z = self.attention_norm(x)
        attended: Tensor = self.attention(z, tokens, keys_values, x)
        if self.recall is not None:
            assert tokens.cross_kv is not None
            attended = self.recall(attended, tokens.cross_placed, tokens.cross_kv)
        z = self.feedforward_norm(attended)
        if self.gate is None:
            proposed: Tensor = self.feedforward(z, tokens, attended)
            return proposed
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
        self, x: Float[Tensor, "M D"], packing: Packing, placed_tokens: Placed | None = None
    ) -> KeysValues:
        """Return keys and values of rows of vectors `x`; `placed_tokens` identifies the pass for caching."""
        return self.attention.project_kv(self.source_norm(x), packing, placed_tokens)

    def forward(
        self, x: Float[Tensor, "M D"], placed_tokens: Placed, keys_values: KeysValues
    ) -> Float[Tensor, "M D"]:
        """Return each vector in `x` plus its attention output over its row of `keys_values`."""
        result: Tensor = self.attention(self.query_norm(x), placed_tokens, keys_values, x)
        return result
