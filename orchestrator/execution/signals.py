"""Ctrl-C: once to drain, twice to end at once; heard within a second, whatever this process is doing.

The same may be asked for by another thread.

Python runs handlers between two steps of the main thread, which may be in compiled code for minutes. So a
thread hears of signals too, through a pipe: it says that they were heard, and ends a process that does not
leave on its own, as `kill -9` would: files and ledger are written for that.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from os import _exit  # that of `os` raises while code of others is looked at
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGTERM is what a batch system sends before it kills, SIGHUP what a terminal sends that is closed."""
AT_ONCE_S, DEAF_S, LEAVE_S = 0.2, 5.0, 15.0
"""After the second: how long a handler may take, one step of the main thread, and all that is left to do."""
INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"


class Heard(Enum):
    """What a signal means."""

    DRAIN = auto()
    """The first: running trials are saved at their next report."""
    LEAVE = auto()
    """The first while no trial runs: what is done now is left."""
    HURRY = auto()
    """The second: everything ends at once."""


class Interrupts:
    """What was heard so far."""

    def __init__(self, on_signal: Callable[[Heard], None]) -> None:
        self.stop = threading.Event()
        """Set by the first, or by anybody who wants the sweep to drain."""
        self.hurry = threading.Event()
        """Set by the second."""
        self._on_signal = on_signal
        self._gentle = self._shields = self._handled = 0
        self._raised = self._pending = False
        self._first: Heard | None = None
        """What the first meant when it came, if the main thread could run its handler."""
        self._left = threading.Event()

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Inside, the first signal is for `stop` alone; elsewhere it raises KeyboardInterrupt."""
        self._gentle += 1
        try:
            yield
        finally:
            self._gentle -= 1

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Inside, nothing is raised; it is on leaving."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._raise()

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the shape of a handler
        """In the main thread."""
        self.stop.set()
        self._handled += 1
        self._first = self._first or self._meaning()
        if self._gentle and self._handled == 1 and not self.hurry.is_set():
            return
        self._pending = True
        if not self._shields:
            self._raise()

    def listen(self, ear: socket.socket) -> None:
        """In a thread, until the pipe is closed."""
        count = 0
        while numbers := ear.recv(1):
            if numbers[0] not in SIGNALS:
                continue
            if numbers[0] == signal.SIGHUP:
                _let_go_of_terminal()
            count += 1
            if count == 1:
                self._on_signal(self._first or self._meaning())
            elif count == 2:
                self.hurry.set()
                self._on_signal(Heard.HURRY)
                threading.Thread(target=self._hasten, daemon=True).start()

    def leave(self) -> None:
        """The main thread is through."""
        self._left.set()

    def _meaning(self) -> Heard:
        return Heard.DRAIN if self._gentle else Heard.LEAVE

    def _raise(self) -> None:
        self._pending, self._raised = False, True
        raise KeyboardInterrupt

    def _hasten(self) -> None:
        if not self._left.wait(AT_ONCE_S) and not (self._raised or self._pending):
            # The handler was called once for two signals.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if self._left.wait(DEAF_S) or (self._raised and self._left.wait(LEAVE_S)):
            return
        end_process(INTERRUPTED)


_CURRENT: Interrupts | None = None


@contextmanager
def interrupts(on_signal: Callable[[Heard], None] | None = None) -> Iterator[Interrupts]:
    """Signals are handled inside; `on_signal` is called in another thread.

    Inside another one it is that one. Outside the main thread, where Python allows no handlers, the events
    are only there to be set by others.
    """
    global _CURRENT  # noqa: PLW0603 - handlers of signals are global too
    mine = Interrupts(on_signal or (lambda _: None))
    if threading.current_thread() is not threading.main_thread():
        yield mine
        return
    if _CURRENT is not None:
        yield _CURRENT
        return
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)  # noqa: FBT003 - its only argument
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    wanted = [each for each in SIGNALS if not (nohup and each is signal.SIGHUP)]
    before = {each: signal.signal(each, mine.handle) for each in wanted}
    woken = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=mine.listen, args=(ear,), name="haltsweep-signals", daemon=True)
    thread.start()
    _CURRENT = mine
    try:
        yield mine
    finally:
        _CURRENT = None
        mine.leave()
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(woken)
        mouth.close()
        thread.join()
        ear.close()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, no signal raises anything: a transaction or a drawing is not left half done."""
    if _CURRENT is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _CURRENT.shield():
        yield


def as_interrupt(stop: threading.Event) -> Callable[[object], None]:
    """What another thread calls to have the effect of Ctrl-C on the thread that called this.

    Outside the main thread, which alone hears signals, it sets `stop`.
    """
    ident = threading.get_ident()
    if threading.current_thread() is not threading.main_thread():
        return lambda _: stop.set()
    return lambda _: signal.pthread_kill(ident, signal.SIGINT)


def end_process(code: int) -> None:
    """End this process at once, from any thread, with a terminal that can be used."""
    with suppress(OSError):
        if os.isatty(1):
            os.write(1, SHOW_CURSOR + b"\r\n")
    _exit(code)


def _let_go_of_terminal() -> None:
    """Nobody reads what is written there any more, and to write raises."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            if stream is not None and stream.isatty():
                with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is wanted
                    os.dup2(nowhere.fileno(), stream.fileno())
