"""Packing equals plain loops over rows."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.specs.examples import examples
from trainables.layers.packing import Packing, put_rows, take

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def packing_of(counts: list[int], extra: int = 0) -> Packing:
    return Packing.of_lengths(torch.tensor(counts), max(counts) + extra)


def numbered(packing: Packing) -> Tensor:
    """Return tokens whose values count from 1."""
    return torch.arange(1.0, packing.row.shape[0] + 1, dtype=torch.float64)[:, None].repeat(1, 2)


@given(counts=lengths, extra=st.integers(0, 2))
def test_pad_places_rows_left_and_fills_with_zeros(counts: list[int], extra: int) -> None:
    packing = packing_of(counts, extra)
    padded = packing.pad(numbered(packing))[..., 0].tolist()
    value = 0.0
    for row, count in zip(padded, counts, strict=True):
        assert row == [value + i + 1 for i in range(count)] + [0.0] * (packing.width - count)
        value += count
    assert torch.equal(packing.mask, packing.pad(numbered(packing))[..., 0] > 0)


@given(counts=lengths, extra=st.integers(0, 2))
def test_unpad_inverts_pad(counts: list[int], extra: int) -> None:
    packing = packing_of(counts, extra)
    x = numbered(packing)
    assert torch.equal(packing.unpad(packing.pad(x)), x)


@given(counts=lengths)
def test_mean_and_spread_are_computed_by_row(counts: list[int]) -> None:
    packing = packing_of(counts)
    parts = numbered(packing).split(counts)
    torch.testing.assert_close(packing.mean(numbered(packing)), torch.stack([part.mean(0) for part in parts]))
    spread = packing.spread(torch.arange(len(counts)))
    assert spread.tolist() == [row for row, count in enumerate(counts) for _ in range(count)]


@given(counts=lengths, data=st.data())
def test_select_renumbers_the_remaining_rows(counts: list[int], data: st.DataObject) -> None:
    packing = packing_of(counts)
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=sum(counts), max_size=sum(counts))))
    tokens, rows, remaining = packing.select(keep)
    assert tokens.tolist() == [i for i, stays in enumerate(keep.tolist()) if stays]
    kept_rows = [packing.row[i].item() for i in tokens.tolist()]
    assert rows.tolist() == sorted(set(kept_rows))
    assert [rows.tolist()[row] for row in remaining.row.tolist()] == kept_rows
    assert remaining.counts.tolist() == [kept_rows.count(row) for row in rows.tolist()]
    assert remaining.width == max(remaining.counts.tolist(), default=0)


@examples(10)
@given(counts=lengths, extra=st.integers(0, 2))
def test_packing_operations_have_correct_gradients(counts: list[int], extra: int) -> None:
    packing = packing_of(counts, extra)
    x = numbered(packing).requires_grad_()
    index = torch.arange(0, x.shape[0], 2)
    assert torch.autograd.gradcheck(lambda y: take(y, index), x)
    assert torch.autograd.gradcheck(lambda y: put_rows(y, 2 * torch.arange(y.shape[0]), 2 * y.shape[0]), x)
    assert torch.autograd.gradcheck(lambda y: packing.mean(y * y), x)
    assert torch.autograd.gradcheck(lambda y: packing.spread(packing.mean(y)), x)


def test_packing_of_host_lengths_equals_packing_of_device_lengths() -> None:
    lengths = [3, 0, 5]
    from_host = Packing.of_counts(np.asarray(lengths), torch.device("cpu"))
    from_device = Packing.of_lengths(torch.tensor(lengths), 5)
    assert torch.equal(from_host.row, from_device.row)
    assert torch.equal(from_host.counts, from_device.counts)
    assert from_host.width == from_device.width
    assert from_host.host_counts.tolist() == from_device.host_counts.tolist() == lengths
