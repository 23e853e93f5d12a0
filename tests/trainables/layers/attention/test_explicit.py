"""The explicit product of attention and its backward pass equal the formula."""

import pytest
import torch
from torch import Tensor

from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import NARROW_COLUMNS, KeptWeights, OffsetBias, explicit
from trainables.layers.packing import Packing

ROWS, HEADS, QUERIES, KEYS, OFFSETS = 2, 3, NARROW_COLUMNS + 3, NARROW_COLUMNS + 1, 4
SHARE = 0.75


def tensor(*shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64).requires_grad_()


def masks(*, causal: bool) -> Tensor:
    if causal:
        is_visible = torch.arange(KEYS) <= torch.arange(QUERIES)[:, None]
        return additive_mask(is_visible.expand(ROWS, 1, -1, -1), torch.float64)
    is_visible = torch.arange(KEYS) < torch.tensor([KEYS, KEYS - 4])[:, None, None, None]
    return additive_mask(is_visible, torch.float64).expand(-1, HEADS, -1, -1)


@pytest.mark.parametrize("width", [4, NARROW_COLUMNS])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True, None])
@pytest.mark.parametrize("has_dropout", [False, True])
def test_values_and_gradients_equal_the_formula(
    width: int, has_bias: bool, causal: bool | None, has_dropout: bool
) -> None:
    q = tensor(ROWS, HEADS, QUERIES, width)
    k, v = (tensor(ROWS, HEADS, KEYS, width, seed=seed) for seed in (1, 2))
    offset = torch.arange(QUERIES)[:, None].expand(ROWS, -1, KEYS) % OFFSETS
    bias = OffsetBias(tensor(ROWS, HEADS, QUERIES, OFFSETS, seed=3), offset) if has_bias else None
    mask = None if causal is None else masks(causal=causal)
    keep = tensor(ROWS, HEADS, QUERIES, KEYS, seed=4) > -0.6
    weight_dropout = KeptWeights(keep, 1 / SHARE) if has_dropout else None
    packings = (
        Packing.of_lengths(torch.full((ROWS,), QUERIES), QUERIES),
        Packing.of_lengths(torch.full((ROWS,), KEYS), KEYS),
    )
    out = explicit(q, k, v, packings, bias, mask, weight_dropout)
    logits = q @ k.mT / width**0.5
    for added in (None if bias is None else bias.table(), mask):
        logits = logits if added is None else logits + added
    weights = logits.softmax(-1)
    expected = (weights * keep / SHARE if has_dropout else weights) @ v
    torch.testing.assert_close(out, expected)
    inputs = [q, k, v] if bias is None else [q, k, v, bias.bias]
    grads = torch.autograd.grad(out.square().sum(), inputs)
    for grad, expected_grad in zip(grads, torch.autograd.grad(expected.square().sum(), inputs), strict=True):
        torch.testing.assert_close(grad, expected_grad)


PACKING = Packing.of_lengths(torch.tensor([3, 1, 2]), 4)
