"""Distributed tests have the shares that pytest-xdist sends to its processes."""

import pytest

from tests.support.numerics.dealing import distribute_tests


def xdist_shares(items: list[str], processes: int) -> list[list[str]]:
    """Cut the items as pytest-xdist's `WorkStealingScheduling.check_schedule` does at the beginning."""
    pending_items, shares = list(items), []
    for number in range(processes):
        size = len(pending_items) // (processes - number)
        shares.append(pending_items[:size])
        del pending_items[:size]
    return shares


@pytest.mark.parametrize("processes", [1, 4])
def test_share_begins_with_a_long_test_and_ends_with_a_quick_test(processes: int) -> None:
    groups = [[f"long {number}"] for number in range(processes)] + [["one", "one too"], ["two", "two too"]]
    rest = [f"short {number}" for number in range(40)]
    items = distribute_tests(groups, rest, processes)
    assert sorted(items) == sorted([*(item for group in groups for item in group), *rest])
    for process, share in enumerate(xdist_shares(items, processes)):
        assert share[0] == f"long {process}"
        assert share[-1].startswith("short")
        assert {"one", "one too"} <= set(share) or not {"one", "one too"} & set(share)
