"""Report the progress of a build to an optional watcher, without effect on the built data."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
REPORT_INTERVAL = 1000
"""Number of items between two reports."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks during a build; both are called in the building thread."""

    on_progress: Callable[[str, int, int], None] = lambda *_: None
    """Called with the unit (`trees`), the number of built items, and the total number."""
    on_wait: Callable[[str], None] = lambda _: None
    """Called if another process builds the same data, with a text that names process, host and file."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def report_to(watcher: Watcher) -> Iterator[None]:
    """Send the progress of every build of this thread to `watcher` inside the block."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def report(subject: str, num_done: int, total: int) -> None:
    """Report that `num_done` of `total` items are built; cheap, and without effect if there is no watcher."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_progress(subject, num_done, total)


def report_each(items: Iterable[T], subject: str, total: int) -> Iterator[T]:
    """Yield the `total` items of `items`; report progress every `REPORT_INTERVAL` items."""
    for number, item in enumerate(items):
        if number % REPORT_INTERVAL == 0:
            report(subject, number, total)
        yield item


def report_waiting(text: str) -> bool:
    """Report that the store waits for the builder named in `text`; return whether a watcher received it."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_wait(text)
    return watcher is not None
