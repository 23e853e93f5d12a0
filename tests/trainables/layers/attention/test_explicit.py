"""The explicit product of attention and its backward pass equal the formula."""

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.layers.attention import explicit as explicit_module
from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import NARROW, KeptWeights, explicit, explicit_packed
from trainables.layers.head_rows import spread_parts
from trainables.layers.packing import Packing

ROWS, HEADS, QUERIES, KEYS = 2, 3, NARROW + 3, NARROW + 1
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


@pytest.mark.parametrize("width", [4, NARROW])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True, None])
@pytest.mark.parametrize("dropping", [False, True])
def test_values_and_gradients_equal_the_formula(
    width: int, biased: bool, causal: bool | None, dropping: bool
) -> None:
    q = tensor(ROWS, HEADS, QUERIES, width)
    k, v = (tensor(ROWS, HEADS, KEYS, width, seed=seed) for seed in (1, 2))
    bias = tensor(ROWS, HEADS, QUERIES, KEYS, seed=3) if biased else None
    mask = None if causal is None else masks(causal=causal)
    keep = tensor(ROWS, HEADS, QUERIES, KEYS, seed=4) > -0.6
    weight_dropout = KeptWeights(keep, 1 / SHARE) if dropping else None
    out = explicit(q, k, v, attention_mask=mask, bias=bias, weight_dropout=weight_dropout)
    logits = q @ k.mT / width**0.5
    for added in (bias, mask):
        logits = logits if added is None else logits + added
    weights = logits.softmax(-1)
    expected = (weights * keep / SHARE if dropping else weights) @ v
    torch.testing.assert_close(out, expected)
    inputs = [each for each in (q, k, v, bias) if each is not None]
    grads = torch.autograd.grad(out.square().sum(), inputs)
    for grad, expected_grad in zip(grads, torch.autograd.grad(expected.square().sum(), inputs), strict=True):
        torch.testing.assert_close(grad, expected_grad)


LENGTHS = np.array([5, 2, 0, 7, 1])
SOURCE_LENGTHS = np.array([6, 2, 3, 7, 9])


@pytest.mark.parametrize("width", [4, NARROW])
@pytest.mark.parametrize("has_source", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("max_pairs", [1, 150])
def test_portions_of_rows_equal_all_rows_at_once(
    width: int, has_source: bool, causal: bool, max_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing = Packing.of_counts(LENGTHS, torch.device("cpu"))
    keys = Packing.of_counts(SOURCE_LENGTHS, torch.device("cpu")) if has_source else packing
    x = tensor(LENGTHS.sum(), 1 if has_source else 3, HEADS, width)
    # Padding repeats the last token of a row, so that it is never NaN.
    source = tensor(SOURCE_LENGTHS.sum(), 2, HEADS, width, seed=1)
    reach = torch.cat([torch.arange(1, length + 1) for length in LENGTHS])
    columns = torch.arange(keys.width)
    mask = additive_mask(keys.mask[:, None, None], torch.float64).expand(-1, HEADS, -1, -1)
    if causal:
        limit = reach[packing.padded_index.flatten()].view(-1, packing.width, 1)
        mask = additive_mask((columns < limit)[:, None], torch.float64)
    keep = tensor(len(LENGTHS), HEADS, packing.width, keys.width, seed=2) > -0.6

    def run() -> list[Tensor]:
        others = spread_parts(source, keys) if has_source else None
        weight_dropout = KeptWeights(keep, 1 / SHARE)
        out = explicit_packed(x, packing, others, keys, attention_mask=mask, weight_dropout=weight_dropout)
        return [out, *torch.autograd.grad(out.square().sum(), [x, source] if has_source else [x])]

    expected = run()
    monkeypatch.setattr(explicit_module, "MAX_PAIRS_IF_FEW", max_pairs)
    for actual, expected_value in zip(run(), expected, strict=True):
        torch.testing.assert_close(actual, expected_value)
