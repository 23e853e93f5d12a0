"""Handle Ctrl-C during a launch: the first signal drains the sweep, the second one ends the process.

Python calls signal handlers between two bytecode instructions of the main thread, which may run compiled code
for minutes. So a thread also receives signals, through a pipe. It announces them, and ends a process that
does not exit after the second one. Files and ledger remain valid, as after `kill -9`.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from os import _exit  # `os._exit` raises while custom code is planned
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Handled signals. Batch systems send SIGTERM before they kill, and closed terminals send SIGHUP."""
HANDLER_S, STEP_S, CLEANUP_S = 0.2, 5.0, 15.0
"""Seconds after the second signal: for its handler, for one step of the main thread, and for cleanup."""
INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"


class SignalEffect(Enum):
    """Effect of a signal."""

    DRAIN = auto()
    """The first signal during trials: running trials write checkpoints at their next report."""
    EXIT = auto()
    """The first signal while no trial runs: the process stops its work."""
    EXIT_NOW = auto()
    """The second signal: everything ends at once."""


class Interrupts:
    """State of the signals received so far, with their handlers."""

    def __init__(self, on_signal: Callable[[SignalEffect], None]) -> None:
        """Create a state without signals; `on_signal` is called in another thread."""
        self.stop = threading.Event()
        """Set by the first signal, or by other code to drain the sweep."""
        self.exit_now = threading.Event()
        """Set by the second signal."""
        self._on_signal = on_signal
        self._gentle = self._shields = self._handled = 0
        self._raised = self._pending = False
        self._first: SignalEffect | None = None
        """Effect of the first signal, once its handler has run."""
        self.has_exited = threading.Event()
        """Set when the main thread has left the context of `interrupts`."""

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Make the first signal only set `stop` inside the context; elsewhere it raises KeyboardInterrupt."""
        self._gentle += 1
        try:
            yield
        finally:
            self._gentle -= 1

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Delay KeyboardInterrupt until the end of the context."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._raise()

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the shape of a handler
        """Handle a signal in the main thread."""
        self.stop.set()
        self._handled += 1
        self._first = self._first or self._meaning()
        if self._gentle and self._handled == 1 and not self.exit_now.is_set():
            return
        self._pending = True
        if not self._shields:
            self._raise()

    def listen(self, receiving_socket: socket.socket) -> None:
        """Announce signals from the pipe until it is closed; run in a separate thread."""
        count = 0
        while numbers := receiving_socket.recv(1):
            if numbers[0] not in SIGNALS:
                continue
            if numbers[0] == signal.SIGHUP:
                _discard_terminal_output()
            count += 1
            if count == 1:
                self._on_signal(self._first or self._meaning())
            elif count == 2:
                self.exit_now.set()
                self._on_signal(SignalEffect.EXIT_NOW)
                if not self.has_exited.wait(HANDLER_S) and not (self._raised or self._pending):
                    # Two signals arrived, but Python called the handler only once.
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                if not (self.has_exited.wait(STEP_S) or (self._raised and self.has_exited.wait(CLEANUP_S))):
                    end_process(INTERRUPTED)

    def _meaning(self) -> SignalEffect:
        return SignalEffect.DRAIN if self._gentle else SignalEffect.EXIT

    def _raise(self) -> None:
        self._pending, self._raised = False, True
        raise KeyboardInterrupt


_CURRENT: Interrupts | None = None


@contextmanager
def interrupts(on_signal: Callable[[SignalEffect], None] | None = None) -> Iterator[Interrupts]:
    """Handle signals inside the context.

    A nested context yields the state of the outer one. Outside the main thread, where Python allows no
    handlers, only other code sets the events.

    Args:
        on_signal: Called in another thread with the effect of each signal.
    """
    global _CURRENT  # noqa: PLW0603 - handlers of signals are global too
    signal_interrupts = Interrupts(on_signal or (lambda _: None))
    if threading.current_thread() is not threading.main_thread():
        yield signal_interrupts
        return
    if _CURRENT is not None:
        yield _CURRENT
        return
    receiving_socket, sending_socket = socket.socketpair()
    sending_socket.setblocking(False)  # noqa: FBT003 - its only argument
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handled = [number for number in SIGNALS if not (nohup and number is signal.SIGHUP)]
    old_handlers = {number: signal.signal(number, signal_interrupts.handle) for number in handled}
    woken = signal.set_wakeup_fd(sending_socket.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(
        target=signal_interrupts.listen, args=(receiving_socket,), name="haltsweep-signals", daemon=True
    )
    thread.start()
    _CURRENT = signal_interrupts
    try:
        yield signal_interrupts
    finally:
        _CURRENT = None
        signal_interrupts.has_exited.set()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        sending_socket.close()
        thread.join()
        receiving_socket.close()


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay KeyboardInterrupt until the end of the context, e.g. of a transaction."""
    if _CURRENT is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _CURRENT.shield():
        yield


def interrupt_function(stop: threading.Event) -> Callable[[object], None]:
    """Return a function for other threads that interrupts the calling thread like Ctrl-C.

    If this is not the main thread, the function sets `stop`, since only the main thread handles signals.
    """
    ident = threading.get_ident()
    if threading.current_thread() is not threading.main_thread():
        return lambda _: stop.set()
    return lambda _: signal.pthread_kill(ident, signal.SIGINT)


def end_process(code: int) -> None:
    """End this process at once, from any thread, and show the terminal cursor again."""
    with suppress(OSError):
        if os.isatty(1):
            os.write(1, SHOW_CURSOR + b"\r\n")
    _exit(code)


def _discard_terminal_output() -> None:
    """Discard output to the closed terminal, since writing to it would raise an error."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            if stream is not None and stream.isatty():
                with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is wanted
                    os.dup2(nowhere.fileno(), stream.fileno())
