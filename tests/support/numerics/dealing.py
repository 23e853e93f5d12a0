"""The order of tests for several processes of pytest-xdist: none begins at the end what takes longest."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def distribute_tests(together: Sequence[Sequence[T]], rest: Sequence[T], hands: int) -> list[T]:
    """All items, of which each of `hands` processes takes a run of neighbours: so does `--dist worksteal`.

    Groups of `together`, the longest first, are dealt to them in turn and stay whole where they fit, since
    tests of a module may share what it has made; `rest` fills them up, and is what they take from each other
    later.
    """
    total = sum(map(len, together)) + len(rest)
    rooms = [(total + hand) // hands for hand in range(hands)]
    made: list[list[T]] = [[] for _ in rooms]
    left: list[T] = []
    for turn, group in enumerate(together):
        in_turn = [(turn + hand) % hands for hand in range(hands)]
        fits = [hand for hand in in_turn if len(made[hand]) + len(group) <= rooms[hand]]
        (made[fits[0]] if fits else left).extend(group)
    left += rest
    order: list[T] = []
    for hand, room in zip(made, rooms, strict=True):
        missing = room - len(hand)
        order += hand + left[:missing]
        del left[:missing]
    return order
