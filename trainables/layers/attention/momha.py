"""Mixture of multi-head attention (MoMHA): experts for queries and outputs, shared keys and values.

Source: Tan et al., Sparse Universal Transformer, s. 3.1, as in their released code. Each of the k selected
experts of a token has H queries; all experts share the H keys and values of a token. The output of an
expert's heads is mapped by that expert's output map, and the results are weighted by the gates.

    logit_ij = (q_i . k_j + q_i . r_{clip(j - i, -W, W)}) / sqrt(head width)

There are 2 W + 1 vectors r for each head, initially zero and shared by all experts. Attention to another
sequence has no positions. With one head, an expert is that of Zhang et al., Mixture of Attention Heads.
"""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from trainables.layers.attention.attend import Backend, WeightDropout, attend_packed
from trainables.layers.attention.explicit import OffsetBias
from trainables.layers.dropout import KeyedDropout
from trainables.layers.experts import ExpertLinear, MixtureSettings, Router, Routing, pair_places
from trainables.layers.head_rows import pad_heads
from trainables.layers.linear import Constant, XavierLinear
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues, PlacedVectors, Tokens
from trainables.settings import Reach, Small

KEY_GAIN = 0.5**0.5


class AttentionSettings(MixtureSettings):
    """Mixture of multi-head attention: the published (E, k, H, D, W)."""

    heads: Annotated[int, Small(2, 1)] = Field(default=4, ge=1)
    """H: heads of one expert; 1 is the mixture of attention heads (MoA)."""
    head_width: Annotated[int, Small(4)] = Field(default=64, ge=1)
    """D: size of one head."""
    window: Annotated[int, Reach(lambda longest: longest - 1), Small(2)] = Field(default=64, ge=0)
    """W: number of distinct offsets on either side; farther offsets count as W."""


class ExpertAttention(nn.Module):
    """Attention with H heads for each selected expert of a token, over full rows and without positions."""

    def __init__(
        self,
        width: int,
        mixture: AttentionSettings,
        dropout: float,
        gating_dropout: float,
        kernel: Backend,
    ) -> None:
        super().__init__()
        inner = mixture.heads * mixture.head_width
        self.router = Router(width, mixture, gating_dropout)
        self.query = ExpertLinear(mixture.experts, width, inner, bias=False)
        self.key = XavierLinear(width, inner, bias=False, gain=KEY_GAIN)
        self.value = XavierLinear(width, inner, bias=False, gain=KEY_GAIN)
        self.output = ExpertLinear(mixture.experts, inner, width, bias=False)
        self.weight_dropout = KeyedDropout(dropout)
        self.heads = mixture.heads
        self.kernel: Backend = kernel

    def project_kv(self, z: Float[Tensor, "M D"], packing: Packing) -> KeysValues:
        """Return keys and values of tokens with states `z`."""
        return KeysValues.of(self._split_heads(self.key(z)), self._split_heads(self.value(z)), packing)

    def forward(
        self, z: Float[Tensor, "M D"], placed_tokens: PlacedVectors, keys_values: KeysValues
    ) -> tuple[Float[Tensor, "M D"], Routing]:
        """Return the attention output of each token over its row of `keys_values`, and its routing."""
        routing: Routing = self.router(z, placed_tokens)
        expert_queries = routing.collect(self.query(routing.dispatch(z), routing.groups))
        queries = self._split_heads(expert_queries.flatten(0, 1)).to(keys_values.both.dtype)
        pairs = _pair_packing(placed_tokens.packing, routing.active)
        attended = attend_packed(
            queries,
            keys_values,
            pairs,
            num_visible=self._num_visible(placed_tokens, routing.active),
            bias=self._offset_bias(queries, placed_tokens, pairs, keys_values.packing),
            dropout=self._make_dropout(placed_tokens),
            backend=self.kernel,
        )
        expert_outputs = routing.sort(attended.reshape(*expert_queries.shape))
        return routing.mix(self.output(expert_outputs, routing.groups)), routing

    def _num_visible(self, placed_tokens: PlacedVectors, active: int) -> Int[Tensor, " P"] | None:  # noqa: ARG002 no limit on keys here
        return None

    def _offset_bias(
        self,
        queries: Float[Tensor, "P H E"],  # noqa: ARG002 no positions
        placed_tokens: PlacedVectors,  # noqa: ARG002
        pairs: Packing,  # noqa: ARG002
        keys: Packing,  # noqa: ARG002
    ) -> OffsetBias | None:
        return None

    def _make_dropout(self, placed_tokens: PlacedVectors) -> WeightDropout | None:
        dropout = self.weight_dropout
        if not dropout.active:
            return None
        return WeightDropout(dropout, dropout.draw(), self._pair_places(placed_tokens))

    def _pair_places(self, placed_tokens: PlacedVectors) -> Int[Tensor, "B T"]:
        """Return the dropout places of all (token, active expert) pairs, in the padded form."""
        place = pair_places(placed_tokens, self.router.active).flatten()
        return _pair_packing(placed_tokens.packing, self.router.active).pad(place)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.heads, -1)


class ExpertSelfAttention(ExpertAttention):
    """Expert attention within each row, with a bias for offsets up to `window`."""

    def __init__(
        self,
        width: int,
        mixture: AttentionSettings,
        dropout: float,
        gating_dropout: float,
        kernel: Backend,
    ) -> None:
        super().__init__(width, mixture, dropout, gating_dropout, kernel)
        self.offsets = Constant(mixture.heads, mixture.head_width, 2 * mixture.window + 1, value=0.0)
        self.window = mixture.window

    def _num_visible(self, placed_tokens: PlacedVectors, active: int) -> Int[Tensor, " P"] | None:
        assert isinstance(placed_tokens, Tokens)
        return (
            None if placed_tokens.num_visible is None else placed_tokens.num_visible.repeat_interleave(active)
        )

    def _offset_bias(
        self, queries: Float[Tensor, "P H E"], placed_tokens: PlacedVectors, pairs: Packing, keys: Packing
    ) -> OffsetBias:
        """Return the terms that offsets add to the logits, for every query and key in the padded form."""
        assert isinstance(placed_tokens, Tokens)
        scaled = pad_heads(queries * queries.shape[-1] ** -0.5, pairs)
        bias = scaled @ self.offsets().to(scaled.dtype)
        return OffsetBias(bias, self._offset(placed_tokens, pairs, keys))

    def _offset(self, placed_tokens: Tokens, pairs: Packing, keys: Packing) -> Int[Tensor, "B T K"]:
        """Return which of the `2 * window + 1` offsets applies to each query and key; cached."""
        position = placed_tokens.position

        def build() -> tuple[Tensor, Tensor]:
            key_positions = torch.arange(keys.width, device=position.device)
            query_positions = placed_tokens.packing.pad(position).repeat_interleave(
                pairs.width // placed_tokens.packing.width, 1
            )
            return position, (key_positions - query_positions[..., None]).clamp_(
                -self.window, self.window
            ).add_(self.window)

        # The cache keeps a reference to `position`, so that no other tensor can have the same `id`.
        name = ("offsets", id(position), pairs.width, keys.width, self.window)
        offsets: Tensor = placed_tokens.packing.get_cached(name, build)[1]
        return offsets


def _pair_packing(packing: Packing, active: int) -> Packing:
    """Return the packing of pairs: each token of `packing` is replaced by its `active` queries."""
    if active == 1:
        return packing

    def build() -> Packing:
        cache = {"counts": packing.host_counts * active} if packing.has_host_counts else {}
        row = packing.row.repeat_interleave(active)
        return Packing(row, packing.counts * active, packing.width * active, cache)

    pairs: Packing = packing.get_cached(("pairs", active), build)
    return pairs
