"""How far a build has come: told from inside, heard by whoever watches, without effect on what is built."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
COUNTED_AT_ONCE = 1000
"""Items between two tellings."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Whom to tell what while data is built; both are called in the building thread."""

    on_progress: Callable[[str, int, int], None] = lambda *_: None
    """What is counted (`trees`), how many there are, how many there will be."""
    on_wait: Callable[[str], None] = lambda _: None
    """Another process builds the same data: who, where, and what is waited for."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Inside, `watcher` hears of every build of this thread."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """For whoever builds: `done` of `total` are there. Cheap, and nothing where nobody watches."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_progress(what, done, total)


def counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The same items, `total` in all, told now and then."""
    for number, item in enumerate(items):
        if number % COUNTED_AT_ONCE == 0:
            tell(what, number, total)
        yield item


def tell_waiting(text: str) -> bool:
    """For the store: `text` says who is waited for. Whether anybody heard it."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.on_wait(text)
    return watcher is not None
