"""Against the parts that pytest-xdist sends to its processes."""

import pytest

from tests.support.numerics.dealing import distribute_tests


def parts(items: list[str], processes: int) -> list[list[str]]:
    """As `WorkStealingScheduling.check_schedule` of pytest-xdist cuts what is pending at the beginning."""
    pending, made = list(items), []
    for number in range(processes):
        size = len(pending) // (processes - number)
        made.append(pending[:size])
        del pending[:size]
    return made


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
def test_every_process_begins_with_what_is_long_and_ends_with_what_is_short(processes: int) -> None:
    together = [[f"long {number}"] for number in range(processes)] + [["one", "one too"], ["two", "two too"]]
    rest = [f"short {number}" for number in range(40)]
    items = distribute_tests(together, rest, processes)
    assert sorted(items) == sorted([*(each for group in together for each in group), *rest])
    for hand, part in enumerate(parts(items, processes)):
        assert part[0] == f"long {hand}"
        assert part[-1].startswith("short")
        assert {"one", "one too"} <= set(part) or not {"one", "one too"} & set(part)


def test_a_group_that_nobody_has_room_for_is_split() -> None:
    assert parts(distribute_tests([["a", "b", "c"], ["d"]], [], 2), 2) == [["a", "b"], ["d", "c"]]
