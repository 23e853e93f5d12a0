"""The Transformer block of all models here: pre-norm, xPos attention, with or without a gate.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt, Eq. 1-4 (plain) and
9-11 (gated). Two things their text leaves open and their runs fix: the inner dropout of a feed-forward sits
before the GELU, and the gate's last dropout on its logit, so that a dropped gate is half open.
"""

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.layers.attention import Backend, WeightDropout, attend_packed
from trainables.layers.dropout import KeyedDropout
from trainables.layers.linear import LayerNorm, XavierLinear
from trainables.layers.positions import Rotation
from trainables.layers.tokens import KeysValues, Tokens
from trainables.settings import ModelSettings


class BlockSettings(ModelSettings):
    """Sizes and rates of a block; the defaults are those published for ListOps."""

    heads: int = Field(default=8, ge=1)
    """Attention heads."""
    head_width: int | None = Field(default=None, ge=2)
    """Size of one head, even; `width / heads` if not given. heads * head_width need not equal width."""
    feedforward_width: int | None = Field(default=None, ge=1)
    """Inner size of the feed-forward; twice the width if not given."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of attention weights dropped."""
    attention: Backend = "auto"
    """Attention kernel: auto, sdpa, flash (needs flash-attn, CUDA and 16-bit tensors) or math."""

    @model_validator(mode="after")
    def _heads_fit(self) -> "BlockSettings":
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads when head_width is not given,"
                f" got width={self.width} and heads={self.heads}; set head_width or change heads"
            )
        if self.size_of_head % 2:
            raise ValueError(
                f"head_width must be even, because positions turn pairs of dimensions,"
                f" got {self.size_of_head} (width={self.width}, heads={self.heads})"
            )
        return self

    @property
    def size_of_head(self) -> int:
        """`head_width`, or its default."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def size_of_feedforward(self) -> int:
        """`feedforward_width`, or its default."""
        return 2 * self.width if self.feedforward_width is None else self.feedforward_width


class Attention(nn.Module):
    """Multi-head attention without biases; queries and keys are turned by xPos."""

    def __init__(self, config: BlockSettings) -> None:
        super().__init__()
        inner = config.heads * config.size_of_head
        self.query = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.key = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.value = XavierLinear(config.width, inner, bias=False, gain=0.5**0.5)
        self.output = XavierLinear(inner, config.width, bias=False)
        self.weight_dropout = KeyedDropout(config.attention_dropout)
        self.output_dropout = KeyedDropout(config.dropout)
        self.heads = config.heads
        self.backend: Backend = config.attention

    def keys_values(
        self, z: Float[Tensor, "M D"], rotation: Rotation
    ) -> tuple[Float[Tensor, "M H E"], Float[Tensor, "M H E"]]:
        """Turned keys, and values, of normed states."""
        values = self._split(self.value(z))
        return rotation(self._split(self.key(z))).to(values.dtype), values

    def forward(self, z: Float[Tensor, "M D"], tokens: Tokens, seen: KeysValues) -> Float[Tensor, "M D"]:
        """What each of `tokens`, with normed states `z`, gathers from `seen`."""
        queries = tokens.query_rotation(self._split(self.query(z))).to(seen.values.dtype)
        gathered = attend_packed(
            queries,
            seen.keys,
            seen.values,
            tokens.packing,
            seen.packing,
            drop=self._drop(tokens),
            backend=self.backend,
        )
        out: Tensor = self.output_dropout(self.output(gathered.flatten(1)), tokens.place)
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.heads, -1)

    def _drop(self, tokens: Tokens) -> WeightDropout | None:
        if not self.weight_dropout.active:
            return None
        place = tokens.packing.pad(tokens.place)
        return WeightDropout(self.weight_dropout, self.weight_dropout.draw(), place)


class FeedForward(nn.Module):
    """Drop(W2 GELU(Drop(W1 z + b1)) + b2)."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.inner = XavierLinear(width, inner)
        self.outer = XavierLinear(inner, width)
        self.inner_dropout = KeyedDropout(dropout)
        self.outer_dropout = KeyedDropout(dropout)

    def forward(self, z: Float[Tensor, "M D"], tokens: Tokens) -> Float[Tensor, "M D"]:
        """Each token by itself."""
        inner = F.gelu(self.inner_dropout(self.inner(z), tokens.place))
        out: Tensor = self.outer_dropout(self.outer(inner), tokens.place)
        return out


class Block(nn.Module):
    """One layer; with `gate_width` its result is mixed with its input by a learned gate."""

    def __init__(self, config: BlockSettings, gate_width: int | None = None) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(config.width)
        self.attention = Attention(config)
        self.feedforward_norm = LayerNorm(config.width)
        self.feedforward = FeedForward(config.width, config.size_of_feedforward, config.dropout)
        self.gate = None if gate_width is None else FeedForward(config.width, gate_width, config.dropout)

    def keys_values(
        self, x: Float[Tensor, "M D"], rotation: Rotation
    ) -> tuple[Float[Tensor, "M H E"], Float[Tensor, "M H E"]]:
        """What tokens with states `x` offer to be looked at; normed like queries."""
        return self.attention.keys_values(self.attention_norm(x), rotation)

    def forward(self, x: Float[Tensor, "M D"], tokens: Tokens, seen: KeysValues) -> Float[Tensor, "M D"]:
        """States of `tokens` one layer on."""
        attended = x + self.attention(self.attention_norm(x), tokens, seen)
        z = self.feedforward_norm(attended)
        proposed: Tensor = attended + self.feedforward(z, tokens)
        if self.gate is None:
            return proposed
        opening: Tensor = self.gate(z, tokens).sigmoid()
        return opening * proposed + (1 - opening) * x
