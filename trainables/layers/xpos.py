"""xPos: rotary positions whose products decay to the left and grow to the right.

Source: Sun et al., A Length-Extrapolatable Transformer, s. 3, in the bidirectional form of Ray Chowdhury and
Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A. Pair i of a head of width E is in
dimensions (2i, 2i+1). At position p it is rotated by p * 10000^(-2i/E). It is scaled by zeta_i^(p/512) in
queries and by zeta_i^(-p/512) in keys, with zeta_i = (2i + 0.4 E) / (1.4 E). A key to the right of its query
is therefore amplified; the published runs have this asymmetry too.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.host import Function, replace_fields
from trainables.types import sum_dtype

ROTATION_BASE = 10_000.0
SCALE_BASE = 512.0
SCALE_OFFSET = 0.4
FAIRSEQ_FIRST_POSITION = 2


@dataclass(frozen=True)
class Rotation:
    """Complex factors that rotate and scale the queries or the keys of M tokens."""

    table: Complex[Tensor, "4 T half"]
    """For every position the factors of queries, the factors of keys, and the conjugates of both."""
    part: int
    """Index of these factors in the first axis of `table`: 0 for queries, 1 for keys."""
    where: Int[Tensor, " M"]
    """Position of each token."""

    @cached_property
    def factor(self) -> Complex[Tensor, "M half"]:
        """Factor of each pair of dimensions as a complex number; each part has at least 32 bits."""
        return self.table[self.part].index_select(0, self.where)

    @cached_property
    def factors(self) -> tuple[Complex[Tensor, "M 1 half"], Complex[Tensor, "M 1 half"]]:
        """The factors with an axis for heads, and their conjugates."""
        factors, conjugates = self.table[self.part :: 2].index_select(1, self.where)[:, :, None].unbind(0)
        return factors, conjugates

    def __call__(self, x: Float[Tensor, "M H E"]) -> Float[Tensor, "M H E"]:
        """Return `x` rotated and scaled, in the precision of the factors."""
        pairs = x.to(self.table.real.dtype).reshape(*x.shape[:-1], -1, 2)
        rotated = torch.view_as_complex(pairs) * self.factor[:, None]
        return torch.view_as_real(rotated).flatten(-2)

    def of_first(self, x: Float[Tensor, "M PHE"], heads: int) -> Float[Tensor, "M PHE"]:
        """Rotate and scale the first `heads` heads of `x` in place and return `x`."""
        width = 2 * self.table.shape[-1]
        if not x.requires_grad:
            return _rotate_in_place(x, self.factor[:, None], heads * width)
        rotated: Tensor = _RotateInPlace.run(x, self.factors, heads * width)
        return rotated


class _RotateInPlace(Function):
    """Multiply the first columns, read as complex numbers, by factors in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: tuple[Tensor, Tensor], columns: int) -> Tensor:
        ctx.mark_dirty(x)
        ctx.back, ctx.columns = factors[1], columns
        return _rotate_in_place(x, factors[0], columns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,), conjugates = grads, ctx.back
        if ctx.columns < grad.shape[1]:
            grad_copy = grad.clone(memory_format=torch.contiguous_format)
            return _rotate_in_place(grad_copy, conjugates, ctx.columns), None, None
        dtype, exact = grad.dtype, conjugates.dtype.to_real()
        wide = (grad if dtype == exact else grad.to(exact)).reshape(grad.shape[0], -1, conjugates.shape[2], 2)
        rotated = torch.view_as_real(torch.view_as_complex(wide) * conjugates).view(grad.shape)
        return rotated if dtype == exact else rotated.to(dtype), None, None


def _rotate_in_place(x: Float[Tensor, "M PHE"], factor: Complex[Tensor, "M 1 half"], columns: int) -> Tensor:
    part, dtype = x if columns == x.shape[1] else x[:, :columns], factor.dtype.to_real()
    exact = part if x.dtype == dtype else part.to(dtype)
    torch.view_as_complex(exact.view(x.shape[0], -1, factor.shape[2], 2)).mul_(factor)
    if exact is not part:
        part.copy_(exact)
    return x


@dataclass(frozen=True)
class NoRotation(Rotation):
    """The identity for queries and keys: attention without positions (NoPE)."""

    @classmethod
    def of(cls, position: Int[Tensor, " M"], dtype: torch.dtype) -> "NoRotation":
        """Build the identity for tokens at these positions."""
        return cls(torch.empty(4, 0, 0, dtype=dtype.to_complex()), 0, position)

    def __call__(self, x: Float[Tensor, "M H E"]) -> Float[Tensor, "M H E"]:
        """Return `x` unchanged."""
        return x

    def of_first(self, x: Float[Tensor, "M PHE"], heads: int) -> Float[Tensor, "M PHE"]:  # noqa: ARG002
        """Return `x` unchanged."""
        return x


def rotations(
    position: Int[Tensor, " M"], width: int, head_width: int, dtype: torch.dtype
) -> tuple[Rotation, Rotation]:
    """Return the rotations of queries and of keys at `position` (at most `width`).

    Exponents are centred on the middle column. This cancels in every product of a query and a key, and keeps
    both within the range of half precision.

    Args:
        position: Position of each token.
        width: Number of columns of the batch.
        head_width: Size of one head.
        dtype: Type of the queries and keys.
    """
    table = _factors(width, head_width, sum_dtype(dtype).to_complex(), position.device)
    return Rotation(table, 0, position), Rotation(table, 1, position)


def select_rotations(
    rotations: tuple[Rotation, Rotation], tokens: Int[Tensor, " K"]
) -> tuple[Rotation, Rotation]:
    """Return the rotations of the tokens at `tokens`."""
    query, key = rotations
    positions = query.where.index_select(0, tokens)
    return replace_fields(query, where=positions), replace_fields(key, where=positions)


@cached_constants(maxsize=8)
def _factors(
    width: int, head_width: int, exact: torch.dtype, device: torch.device
) -> Complex[Tensor, "4 T half"]:
    """Return the table of rotation factors for positions 0 to `width`, cached for later batches."""
    half = torch.arange(head_width // 2, device=device, dtype=torch.float64)
    positions = torch.arange(width + 1, device=device, dtype=torch.float64)[:, None]
    angle = positions * ROTATION_BASE ** (-2 * half / head_width)
    zeta = (2 * half + SCALE_OFFSET * head_width) / ((1 + SCALE_OFFSET) * head_width)
    scale = zeta ** ((positions - (width + 1) // 2) / SCALE_BASE)
    factors = [torch.polar(magnitude, angle).to(exact) for magnitude in (scale, 1 / scale)]
    return torch.stack((*factors, *(factor.conj() for factor in factors)))


def sinusoids(count: int, like: Float[Tensor, "*any D"]) -> Float[Tensor, "count D"]:
    """Return fixed encodings of `count` positions: sines in even dimensions, cosines in odd dimensions.

    Source: Vaswani et al., Attention Is All You Need, s. 3.5. Width, type and device are those of `like`.
    """
    places = torch.arange(count, device=like.device, dtype=torch.float64)[:, None]
    width = like.shape[-1]
    dimensions = torch.arange(width, device=like.device)
    angle = places * ROTATION_BASE ** (-2 * (dimensions // 2) / width)
    return torch.where(dimensions % 2 == 0, angle.sin(), angle.cos()).to(like.dtype)


def halved_sinusoids(count: int, like: Float[Tensor, "*any D"]) -> Float[Tensor, "count D"]:
    """Return fixed encodings of `count` positions: all sines, then all cosines, as in fairseq.

    Frequency i of H = D // 2 is 10000^(-i / (H - 1)). The first place has the number 2, because fairseq
    counts from after the number 1 of its padding token. An odd last dimension is zero. Width, type and device
    are those of `like`.
    """
    half = like.shape[-1] // 2
    numbers = torch.arange(count, device=like.device, dtype=torch.float64) + FAIRSEQ_FIRST_POSITION
    exponent = torch.arange(half, device=like.device, dtype=torch.float64) / max(1, half - 1)
    angle = numbers[:, None] * ROTATION_BASE**-exponent
    table = torch.cat((angle.sin(), angle.cos()), -1)
    return torch.nn.functional.pad(table, (0, like.shape[-1] % 2)).to(like.dtype)
