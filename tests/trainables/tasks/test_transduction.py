"""Transduction: strings, and settings that are refused."""

from collections import Counter

import pyarrow as pa

from tests.oracles.solvers import transduction_solver as oracle
from trainables.tasks import transduction as task


def build(split: str, **settings: object) -> pa.Table:
    return task.build(task.Config(**oracle.SMALL | settings), split)


def test_functions_have_the_same_strings() -> None:
    assert build("train", function="copy")["tokens"] == build("train", function="sort")["tokens"]


def test_lengths_are_equally_frequent() -> None:
    """Shares of ten lengths in 20,000 strings are within five deviations; short strings are exhausted."""
    table = task.build(task.Config(), "train")
    counts = Counter(len(row) for row in table["tokens"].to_pylist())
    assert set(counts) == set(range(3, 13))
    assert counts[3] + counts[4] < 512 + 4096
    longer = [counts[length] for length in range(5, 13)]
    mean = sum(longer) / len(longer)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in longer)
