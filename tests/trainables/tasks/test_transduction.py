"""Transduction: answers, strings, and settings that are refused."""

from collections import Counter

import pyarrow as pa
import pytest

from tests.oracles.solvers import transduction_solver as oracle
from trainables.data.split import content_hash
from trainables.tasks import transduction as task


def build(split: str, **settings: object) -> pa.Table:
    return task.build(task.Config(**oracle.SMALL | settings), split)


@pytest.mark.parametrize("function", ["copy", "reverse", "sort"])
def test_answers_equal_the_function_of_the_input(function: str) -> None:
    rows = build("length-9", function=function).to_pydict()
    assert [oracle.solve(task.decode(row), function) for row in rows["tokens"]] == rows["answer"]


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


def test_symbols_have_ordered_names() -> None:
    assert task.decode([0, 1, 2, 9]) == "<pad> <end> s0 s7"
    shape = task.shape(task.Config())
    assert (shape.vocabulary_size, shape.length_max, shape.answer_length_max) == (10, 12, 13)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length_min": 7}, "length_min .*length_max, got 7 and 6"),
        ({"test_lengths": [9, 6]}, r"test_lengths .*length_max=6.* \[9, 6\]"),
        ({"test_lengths": [9, 9]}, r"test_lengths .*length_max=6.* \[9, 9\]"),
        ({"train_examples": 9999}, "5456"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task.Config(**oracle.SMALL | settings)


def test_generated_content_is_unchanged() -> None:
    """If this fails, the generator has changed: raise VERSION, so that old stored data is not reused."""
    hashes = {name: content_hash(build(name)) for name in ("train", "valid", "near-iid", "length-7")}
    assert (task.VERSION, hashes) == (
        2,
        {
            "train": "2a185c1ecf2803b75e2b4c8eedf03c89",
            "valid": "96966949a27728a14a6d65388ea8b97f",
            "near-iid": "e9ef7b62a77f7901aa52cc3e0518bf05",
            "length-7": "9c67b50c367cb7f29c455b2f79e55bf5",
        },
    )
