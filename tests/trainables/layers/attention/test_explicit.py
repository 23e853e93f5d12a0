"""The explicit product of attention and its backward pass equal the formula."""

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.layers import head_rows
from trainables.layers.attention import explicit as explicit_module
from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import NARROW, KeptWeights, explicit, explicit_packed
from trainables.layers.head_rows import HeadRows, gather, spread, spread_parts
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


PACKING = Packing.of_lengths(torch.tensor([3, 1, 2]), 4)


def test_gather_inverts_spread() -> None:
    x = tensor(6, HEADS, 4)
    wide = spread(x, PACKING)
    assert wide.shape == (3, HEADS, 4, 4)
    assert wide.is_contiguous()
    torch.testing.assert_close(wide[0, :, :3].transpose(0, 1), x[:3])
    assert torch.equal(gather(wide, PACKING), x)
    (gradient,) = torch.autograd.grad((gather(wide, PACKING) * x.detach()).sum(), x)
    assert torch.equal(gradient, x.detach())


def test_padding_has_no_gradient() -> None:
    x = tensor(6, HEADS, 4)
    (gradient,) = torch.autograd.grad(spread(x, PACKING).sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))
    wide = tensor(3, HEADS, 4, 4)
    (gradient,) = torch.autograd.grad(gather(wide, PACKING).sum(), wide)
    assert torch.equal(gradient, PACKING.mask[:, None, :, None].double().expand_as(wide))


def test_spread_multiplies_parts_by_factors_and_gradients_by_conjugates() -> None:
    x, angle = tensor(6, 3, HEADS, 4), torch.arange(16, dtype=torch.float64).view(2, 1, 1, 4, 2)
    factor = torch.polar(angle / 7 + 1, angle).expand(-1, 3, -1, -1, -1)
    rotated = spread_parts(x, PACKING, (factor, factor.conj().resolve_conj()))
    plain = spread_parts(x, PACKING)
    pairs = torch.view_as_complex(plain.unflatten(-1, (2, 2))[:2]) * factor
    expected = torch.cat((torch.view_as_real(pairs).flatten(-2), plain[2:]))
    torch.testing.assert_close(rotated, expected)
    grad, expected_grad = (
        torch.autograd.grad(each.square().sum(), x)[0]
        for each in (
            rotated[..., :1, :],
            expected[..., :1, :],
        )
    )
    torch.testing.assert_close(grad, expected_grad)


def factors(width: int) -> tuple[Tensor, Tensor]:
    angle = torch.arange(2 * 3 * 4 * width // 2, dtype=torch.float64).view(2, 3, 1, 4, -1)
    factor = torch.polar(angle / 90 + 1, angle)
    return factor, factor.conj().resolve_conj()


@pytest.mark.parametrize("width", [4, NARROW])
@pytest.mark.parametrize("has_source", [False, True])
@pytest.mark.parametrize("dropping", [False, True])
def test_packed_attention_equals_padded_attention(width: int, has_source: bool, dropping: bool) -> None:
    x = tensor(6, 1 if has_source else 3, HEADS, width)
    source = tensor(2, 3, HEADS, KEYS, width, seed=1) if has_source else None
    columns = KEYS if has_source else PACKING.width
    mask = None if has_source else additive_mask(PACKING.mask[:, None, None], torch.float64)
    rotations = None if has_source else factors(width)
    keep = tensor(3, HEADS, PACKING.width, columns, seed=2) > -0.6
    weight_dropout = KeptWeights(keep, 1 / SHARE) if dropping else None
    parts = spread_parts(x, PACKING, rotations)
    q, k, v = parts.unbind(0) if source is None else (parts[0], *source.unbind(0))
    expected = gather(explicit(q, k, v, attention_mask=mask, weight_dropout=weight_dropout), PACKING)
    output = explicit_packed(
        x, PACKING, source, factors=rotations, attention_mask=mask, weight_dropout=weight_dropout
    )
    torch.testing.assert_close(output, expected)
    inputs = [x] if source is None else [x, source]
    for grad, expected_grad in zip(
        torch.autograd.grad(output.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
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


@pytest.mark.parametrize("parts", [1, 3])
def test_head_indices_of_the_host_equal_those_of_the_device(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> HeadRows:
        return HeadRows.of(Packing.of_counts(np.array([3, 1, 2]), torch.device("cpu"), 4), HEADS, parts)

    by_host = build()
    monkeypatch.setattr(head_rows, "MAX_HOST_INDICES", 0)
    for rows in (build(), HeadRows.of(PACKING, HEADS, parts)):
        assert torch.equal(rows.out, by_host.out)
        assert torch.equal(rows.back, by_host.back)
        assert rows.shape == by_host.shape
