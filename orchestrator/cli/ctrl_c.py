"""Handle Ctrl-C from the start of a process, even where Python loses the KeyboardInterrupt.

Python prints and drops the exception in a callback of the garbage collector. Compiled code that imports a
module, as PyTorch imports NumPy, drops it too, and the half-imported module fails later with another error.
So this module records that Ctrl-C was pressed. The second Ctrl-C ends the process at once, in case custom
code ignores the first one.
"""

import signal
import sys
import threading
from types import FrameType
from typing import Any

RETRY_DELAY_S = 0.05
"""Seconds after which a lost Ctrl-C is raised again; by then, the code that lost it has returned."""

_INTERRUPTED = threading.Event()


def handle_ctrl_c() -> None:
    """Handle Ctrl-C from now on, unless the process ignores it or has another handler."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _reraise_interrupt


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed since `handle_ctrl_c`; later errors may be consequences of it."""
    return _INTERRUPTED.is_set()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.default_int_handler(number, frame)


def _reraise_interrupt(exception: Any) -> None:
    """Print exceptions that cannot be caught, but raise KeyboardInterrupt again."""
    if exception.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(exception)
        return
    signal.signal(signal.SIGINT, _interrupt)
    main = threading.main_thread().ident or 0
    timer = threading.Timer(RETRY_DELAY_S, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()
