"""Differences between specs are printed readably."""

import pytest

from orchestrator.spec.differences import differences

SEEDS = [2103623536, 1335441347, 1980848124, 942463596, 1598591555]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (3, 4, "key: 3 -> 4"),
        (SEEDS, [*SEEDS, 7, 8], " [7, 8]"),
        ([7, *SEEDS], [*SEEDS, 7], "-> [2103623536, 1335441347, 1980848124, 942463596, 159859155..."),
    ],
)
def test_item_added_to_a_long_list_is_printed(before: object, after: object, expected: str) -> None:
    (difference,) = differences({"key": before}, {"key": after})
    assert str(difference).endswith(expected)
