"""Ctrl-C from the first moments of a process on, and where it is swallowed.

Python raises KeyboardInterrupt wherever the main thread is. In a callback of the garbage collector that is
printed and forgotten. In compiled code that imports a module, as PyTorch imports NumPy, it is forgotten as
well, and half a module is left, which fails with some other error where it is first used. So that there was a
Ctrl-C is remembered.
"""

import signal
import sys
import threading
from types import FrameType
from typing import Any

AGAIN_S = 0.05
"""How long after it was swallowed a Ctrl-C is raised again: what swallowed it must be left by then."""

_HEARD = threading.Event()


def hear() -> None:
    """Remember every Ctrl-C from now on. Nothing is done where it is ignored, or something else hears it."""
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)
        sys.unraisablehook = _raise_again


def was_heard() -> bool:
    """Whether there was a Ctrl-C that `hear` was there for: what fails after that fails of it."""
    return _HEARD.is_set()


def _remember(number: int, frame: FrameType | None) -> None:
    _HEARD.set()
    signal.default_int_handler(number, frame)


def _raise_again(raised: Any) -> None:
    """In place of a traceback, where nobody could catch what was raised."""
    if raised.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(raised)
        return
    main = threading.main_thread().ident or 0
    again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
    again.daemon = True
    again.start()
