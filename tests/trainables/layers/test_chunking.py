"""Chunks contain every token once, independent of padding, and equal those of the published runs."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.layers.chunking import ChunkSettings, Cut
from trainables.layers.packing import Packing

chunks = st.builds(
    ChunkSettings,
    by=st.sampled_from(["size", "count"]),
    size=st.integers(1, 12),
    count=st.integers(1, 12),
    even=st.sampled_from([None, True, False]),
)
totals = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@given(settings=chunks, total=st.integers(1, 300), causal=st.booleans())
def test_chunks_cover_a_sequence_within_the_size_bound(
    settings: ChunkSettings, total: int, causal: bool
) -> None:
    lengths = settings.lengths(total, causal=causal)
    assert sum(lengths) == total
    assert set(lengths[:-1]) <= {lengths[0]}
    assert 1 <= lengths[-1] <= lengths[0]
    if settings.by == "size":
        assert lengths[0] <= settings.size
    else:
        assert len(lengths) <= settings.count


@given(settings=chunks, totals=totals, causal=st.booleans(), padding=st.integers(0, 3))
def test_batch_is_cut_row_by_row(
    settings: ChunkSettings, totals: list[int], causal: bool, padding: int
) -> None:
    packing = Packing.of_lengths(torch.tensor(totals), max(totals) + padding)
    cut = Cut.of(packing, settings, causal=causal)
    expected = [settings.lengths(total, causal=causal) for total in totals]
    assert cut.counts.tolist() == [len(lengths) for lengths in expected]
    assert cut.num_chunks_max == max(map(len, expected))
    assert cut.longest == max(max(lengths) for lengths in expected)
    assert cut.number.tolist() == [
        n for row in expected for n, length in enumerate(row) for _ in range(length)
    ]
    assert cut.column.tolist() == [t for row in expected for length in row for t in range(length)]
    for number, chunk in enumerate(cut.chunks()):
        assert chunk.rows.tolist() == [row for row, lengths in enumerate(expected) if len(lengths) > number]
        assert chunk.packing.counts.tolist() == [row[number] for row in expected if len(row) > number]


@pytest.mark.parametrize(
    ("settings", "total", "causal", "lengths"),
    [
        ({"size": 100}, 512, False, [86] * 5 + [82]),  # as published: six chunks of nearly equal size
        ({"size": 100}, 512, True, [100] * 5 + [12]),
        ({"size": 100, "even": True}, 512, True, [86] * 5 + [82]),
        ({"size": 100, "even": False}, 512, False, [100] * 5 + [12]),
        ({"by": "count", "count": 5}, 512, False, [103] * 4 + [100]),  # fixed recurrence at both lengths
        ({"by": "count", "count": 5}, 1024, True, [205] * 4 + [204]),
        ({"by": "count", "count": 5}, 3, False, [1] * 3),
        ({"by": "count", "count": 5}, 6, False, [2] * 3),
    ],
)
def test_chunk_lengths_equal_the_published_ones(
    settings: dict[str, Any], total: int, causal: bool, lengths: list[int]
) -> None:
    assert ChunkSettings(**settings).lengths(total, causal=causal) == lengths


def test_positions_restart_in_every_chunk_and_attention_ends_with_it() -> None:
    packing = Packing.of_lengths(torch.tensor([5, 2]), 5)
    cut = Cut.of(packing, ChunkSettings(size=2), causal=True)
    tokens = cut.tokens(4, torch.float64, causal=True)
    assert tokens.reach is not None
    assert tokens.reach.tolist() == [1, 2, 1, 2, 1, 1, 2]
    assert tokens.position.tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert tokens.place.unique().numel() == 7
    assert cut.tokens(4, torch.float64, causal=False).reach is None
