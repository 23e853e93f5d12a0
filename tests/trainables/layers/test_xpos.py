"""With xPos, the product of a query and a key depends only on the distance of their positions."""

import math

import pytest
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


@given(at_q=st.integers(0, 50), at_k=st.integers(0, 50), seed=st.integers(0, 9))
def test_product_is_the_sum_of_rotated_and_scaled_pairs(at_q: int, at_k: int, seed: int) -> None:
    q, k = vectors(seed)
    expected = 0.0
    for i in range(SIZE // 2):
        zeta = (2 * i + 0.4 * SIZE) / (1.4 * SIZE)
        angle = (at_q - at_k) * 10_000 ** (-2 * i / SIZE)
        turn = complex(q[2 * i], q[2 * i + 1]) * complex(k[2 * i], -k[2 * i + 1])
        expected += (turn * complex(math.cos(angle), math.sin(angle))).real * zeta ** ((at_q - at_k) / 512)
    assert math.isclose(product(q, k, at_q, at_k), expected, abs_tol=1e-9)


def test_product_with_a_later_key_is_amplified() -> None:
    first_pair = torch.zeros(SIZE, dtype=torch.float64)
    first_pair[0] = 1.0
    turn = math.cos(512.0)
    right = product(first_pair, first_pair, 0, 512, width=600) / turn
    left = product(first_pair, first_pair, 512, 0, width=600) / turn
    assert math.isclose(right, 3.5, rel_tol=1e-6)
    assert math.isclose(left, 1 / 3.5, rel_tol=1e-6)


def test_scales_of_long_sequences_fit_half_precision() -> None:
    query, key = rotations(torch.arange(4096), 4096, SIZE, torch.float16)
    rotated = torch.stack([each(torch.ones(4096, 1, SIZE)).to(torch.float16) for each in (query, key)])
    assert rotated.isfinite().all()
    assert rotated.unflatten(-1, (-1, 2)).abs().amax(-1).gt(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_of_the_first_heads_equals_separate_rotation(dtype: torch.dtype) -> None:
    heads, width, position = 3, 4, torch.tensor([0, 5, 2, 2])
    x = torch.randn(4, 2 * heads * width, generator=torch.Generator().manual_seed(0)).to(dtype)
    for rotation in rotations(position, 6, width, torch.float32):
        tensor, copied = x.clone().requires_grad_(), x.clone().requires_grad_()
        output = rotation.of_first(tensor * 1, heads)
        first, rest = copied.view(4, 2, heads, width).unbind(1)
        expected = torch.stack((rotation(first).to(dtype), rest), 1).flatten(1)
        assert torch.equal(output, expected)
        grads = [
            torch.autograd.grad(result.float().square().sum(), source)
            for result, source in ((output, tensor), (expected, copied))
        ]
        assert torch.equal(grads[0][0], grads[1][0])
        tensor, copied = (x[:, : heads * width].clone().requires_grad_() for _ in range(2))
        output, expected = rotation.of_first(tensor * 1, heads), rotation(copied.view(4, heads, width))
        assert torch.equal(output, expected.to(dtype).flatten(1))
        grad, expected_grad = (
            torch.autograd.grad(result.to(dtype).float().square().sum(), source)[0]
            for result, source in ((output, tensor), (expected, copied))
        )
        assert torch.equal(grad, expected_grad)
