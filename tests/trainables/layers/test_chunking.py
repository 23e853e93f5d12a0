"""Chunks contain every token once, independent of padding, and equal those of the published runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.layers.chunking import ChunkSettings

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
