"""Padding and selecting packed tokens equal loops over rows."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.layers.packing import Packing

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
