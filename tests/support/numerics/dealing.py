"""Order tests for several processes of pytest-xdist so that no process starts a long test at the end."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def distribute_tests(groups: Sequence[Sequence[T]], rest: Sequence[T], processes: int) -> list[T]:
    """Return all items, ordered for `--dist worksteal`, which gives each process one contiguous share.

    Args:
        groups: Groups of tests, longest first, assigned to the processes in turn. A group that fits a share
            stays whole, because tests of a module may share results.
        rest: Quick tests, which fill the ends of the shares and move between processes later.
        processes: Number of processes.
    """
    total = sum(map(len, groups)) + len(rest)
    sizes = [(total + process) // processes for process in range(processes)]
    shares: list[list[T]] = [[] for _ in sizes]
    remainder: list[T] = []
    for number, group in enumerate(groups):
        preference = [(number + process) % processes for process in range(processes)]
        fitting_processes = [
            process for process in preference if len(shares[process]) + len(group) <= sizes[process]
        ]
        (shares[fitting_processes[0]] if fitting_processes else remainder).extend(group)
    remainder += rest
    order: list[T] = []
    for process, size in zip(shares, sizes, strict=True):
        missing = size - len(process)
        order += process + remainder[:missing]
        del remainder[:missing]
    return order
