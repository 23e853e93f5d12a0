"""Progress of a build, reported to a watcher if there is one; without effect on what is built."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
COUNTED_AT_ONCE = 1000
"""Items between two reports."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks while data is built; both are called in the building thread."""

    on_progress: Callable[[str, int, int], None] = lambda *_: None
    """Unit (`trees`), number built, number in all."""
    on_wait: Callable[[str], None] = lambda _: None
    """Another process builds the same data: a text that names process, host and file."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Inside, `watcher` receives the progress of every build of this thread."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def report(what: str, done: int, total: int) -> None:
    """Report that `done` of `total` items are built. Cheap; does nothing without a watcher."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_progress(what, done, total)


def counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The same items, `total` in all, reported every `COUNTED_AT_ONCE`."""
    for number, item in enumerate(items):
        if number % COUNTED_AT_ONCE == 0:
            report(what, number, total)
        yield item


def report_waiting(text: str) -> bool:
    """Report that the store waits; `text` names the builder. False without a watcher."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_wait(text)
    return watcher is not None
