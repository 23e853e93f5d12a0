"""With xPos, the product of a query and a key depends only on the distance of their positions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.layers.xpos import BOTH, KEYS, QUERIES, rotate, rotation_table

SIZE = 6


def rotate_vectors(x: Tensor, positions: Tensor, width: int, parts: slice) -> Tensor:
    """Return the vectors `x` (positions, size), each rotated as a single head."""
    factors = rotation_table(width, SIZE, x.dtype, x.device).index_select(0, positions)[:, :, None]
    return rotate(x[:, None, None], factors, parts)[:, 0, 0]


def product(q: Tensor, k: Tensor, at_q: int, at_k: int, width: int = 60) -> float:
    rotated_q = rotate_vectors(q[None], torch.tensor([at_q]), width, QUERIES)
    rotated_k = rotate_vectors(k[None], torch.tensor([at_k]), width, KEYS)
    return (rotated_q * rotated_k).sum().item()


def vectors(seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, SIZE, generator=stream, dtype=torch.float64)
    return q, k


@given(at_q=st.integers(0, 50), at_k=st.integers(0, 50), shift=st.integers(0, 40), seed=st.integers(0, 9))
def test_product_depends_only_on_the_distance(at_q: int, at_k: int, shift: int, seed: int) -> None:
    q, k = vectors(seed)
    original, shifted = product(q, k, at_q, at_k), product(q, k, at_q + shift, at_k + shift, width=90)
    assert math.isclose(original, shifted, abs_tol=1e-9)


def test_scales_of_long_sequences_fit_half_precision() -> None:
    ones, positions = torch.ones(4096, SIZE, dtype=torch.float16), torch.arange(4096)
    factors = torch.stack([rotate_vectors(ones, positions, 4096, parts) for parts in (QUERIES, KEYS)])
    assert factors.isfinite().all()
    assert factors.unflatten(-1, (-1, 2)).abs().amax(-1).gt(0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rotation_of_several_parts_equals_separate_rotation(dtype: torch.dtype) -> None:
    positions = torch.tensor([0, 5, 2, 2])
    x = torch.randn(4, 3, 2, SIZE, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    factors = rotation_table(6, SIZE, dtype, x.device).index_select(0, positions)[:, :, None]
    separate = [rotate(x[:, :1], factors, QUERIES), rotate(x[:, 1:2], factors, KEYS), x[:, 2:]]
    assert torch.equal(rotate(x, factors, BOTH), torch.cat(separate, 1))
    if dtype == torch.float64:
        assert torch.autograd.gradcheck(lambda vectors_: rotate(vectors_, factors, BOTH), x)
