"""With xPos, the product of a query and a key depends only on the distance of their positions."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.layers.xpos import rotations

SIZE = 6


def product(q: Tensor, k: Tensor, at_q: int, at_k: int, width: int = 60) -> float:
    positions = torch.tensor([at_q, at_k])
    query, key = rotations(positions, width, SIZE, torch.float64)
    rotated_q, rotated_k = query(q.expand(2, 1, SIZE)), key(k.expand(2, 1, SIZE))
    return (rotated_q[0] * rotated_k[1]).sum().item()


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
    query, key = rotations(torch.arange(4096), 4096, SIZE, torch.float16)
    rotated = torch.stack([each(torch.ones(4096, 1, SIZE)).to(torch.float16) for each in (query, key)])
    assert rotated.isfinite().all()
    assert rotated.unflatten(-1, (-1, 2)).abs().amax(-1).gt(0).all()
