"""Ctrl-C: once to drain, twice to stop at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""SIGTERM is what a batch system sends before it kills."""


@contextmanager
def interrupts(told: Callable[[], None] | None = None) -> Iterator[threading.Event]:
    """An event that the first signal sets, after which `told` is called; the second raises KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, the event is only there to be set by others.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if told is not None:
            told()

    before = {each: signal.signal(each, handle) for each in SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
