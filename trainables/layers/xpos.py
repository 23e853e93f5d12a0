"""xPos: rotary positions whose products decay to the left and grow to the right.

Source: Sun et al., A Length-Extrapolatable Transformer, s. 3, in the bidirectional form of Ray Chowdhury and
Caragea, Investigating Recurrent Transformers with Dynamic Halt, App. A. Pair i of a head of width E is in
dimensions (2i, 2i+1). At position p it is rotated by p * 10000^(-2i/E). It is scaled by zeta_i^(p/512) in
queries and by zeta_i^(-p/512) in keys, with zeta_i = (2i + 0.4 E) / (1.4 E). A key to the right of its query
is therefore amplified; the published runs have this asymmetry too.
"""

from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from trainables.layers.constant_shapes import cached_constants
from trainables.layers.host import Function
from trainables.types import sum_dtype

ROTATION_BASE = 10_000.0
SCALE_BASE = 512.0
SCALE_OFFSET = 0.4
FAIRSEQ_FIRST_POSITION = 2


QUERIES, KEYS, BOTH = slice(0, 1), slice(1, 2), slice(0, 2)
"""Slices of (queries, keys)."""


class _Rotate(Function):
    """`x` with its first parts multiplied by complex factors; consecutive pairs of numbers are complex."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Tensor, conjugates: Tensor) -> Tensor:
        ctx.conjugates = conjugates
        return _rotate_parts(x, factors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _rotate_parts(grads[0], ctx.conjugates), None, None


def _rotate_parts(
    x: Float[Tensor, "M P H E"], factors: Complex[Tensor, "M R 1 half"]
) -> Float[Tensor, "M P H E"]:
    rotated, dtype = x.clone(memory_format=torch.contiguous_format), factors.dtype.to_real()
    part = rotated[:, : factors.shape[1]]
    exact = part.to(dtype)
    torch.view_as_complex(exact.view(*exact.shape[:-1], -1, 2)).mul_(factors)
    if exact is not part:
        part.copy_(exact)
    return rotated


def rotate(
    x: Float[Tensor, "M P H E"], factors: Complex[Tensor, "M 4 1 half"], parts: slice
) -> Float[Tensor, "M P H E"]:
    """Return `x` with its first parts rotated and scaled.

    Args:
        x: Queries, keys and values, as far as they are given, (tokens, parts, heads, head width).
        factors: Rows of `rotation_table`, one for each token.
        parts: Which of queries and keys the first parts are.
    """
    result: Tensor = _Rotate.run(x, factors[:, parts], factors[:, 2:][:, parts])
    return result


def rotation_table(
    width: int, head_width: int, dtype: torch.dtype, device: torch.device
) -> Complex[Tensor, "T 4 half"]:
    """Return the factors of queries and of keys at positions 0 to `width`, and the conjugates of both.

    Exponents are centred on the middle column. This cancels in every product of a query and a key, and keeps
    both within the range of half precision. The table is cached for later batches.

    Args:
        width: Number of columns of the batch.
        head_width: Size of one head.
        dtype: Type of the queries and keys; each part of a factor has at least 32 bits.
        device: Device of the table.
    """
    return _factors(width, head_width, sum_dtype(dtype).to_complex(), device)


@cached_constants(maxsize=8)
def _factors(
    width: int, head_width: int, exact: torch.dtype, device: torch.device
) -> Complex[Tensor, "T 4 half"]:
    half = torch.arange(head_width // 2, device=device, dtype=torch.float64)
    positions = torch.arange(width + 1, device=device, dtype=torch.float64)[:, None]
    angle = positions * ROTATION_BASE ** (-2 * half / head_width)
    zeta = (2 * half + SCALE_OFFSET * head_width) / ((1 + SCALE_OFFSET) * head_width)
    scale = zeta ** ((positions - (width + 1) // 2) / SCALE_BASE)
    factors = [torch.polar(magnitude, angle).to(exact) for magnitude in (scale, 1 / scale)]
    return torch.stack((*factors, *(factor.conj() for factor in factors)), 1)


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
