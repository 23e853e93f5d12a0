"""Set up every child process before it calls its function, and clean up afterwards."""

import atexit
import ctypes
import faulthandler
import fcntl
import importlib
import io
import multiprocessing.process
import multiprocessing.util
import os
import signal
import sys
import traceback
import weakref
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from orchestrator.isolation.messages import ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles

LOWEST_DESCRIPTOR = 200
"""Lowest descriptor number that this module opens, above the numbers that user code may close."""
OOM_SCORE = 500
"""OOM score of children, so that Linux kills a child before its launcher when memory runs out."""
EXIT_S = 10
"""Maximum seconds for exit handlers of user code."""
PR_SET_PDEATHSIG = 1
END_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals that ask a process to end. Training code may handle them, e.g. by raising an exception."""


def run_child(order: ChildOrder, connection: int, output: int | None, files: LaunchFiles) -> None:
    """Call the function of `order`, then end this process; never return.

    Args:
        order: The function and its payload.
        connection: Descriptor of the connection that is passed to the function.
        output: Descriptor of the log file; None if standard output already is the log file.
        files: Files of the launch folder.
    """
    exit_code = 1
    try:
        die_with_parent(signal.SIGKILL)
        _set_up(output)
        module, _, name = order.target.partition(":")
        function = getattr(importlib.import_module(module), name)
        own_connection = Connection(fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR))
        os.close(connection)
        function(order.payload, own_connection, files)
        exit_code = 0
    except EOFError:
        pass  # the other end was closed
    except BaseException:
        traceback.print_exc()
    number = received_signal()
    run_exit_handlers()
    if exit_code and number:  # user code responded to the signal by ending the function
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(exit_code)


@dataclass
class _SignalRecorder:
    """Recorder of signals with a Python handler, inactive once a library replaces the wakeup descriptor."""

    descriptor: int | None = None
    numbers: bytes = b""

    def begin(self) -> None:
        """Start recording signals that this process receives."""
        for descriptor in (pipe_ends := os.pipe()):
            os.set_blocking(descriptor, False)
        self.descriptor, writing = (
            fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) for descriptor in pipe_ends
        )
        for descriptor in pipe_ends:
            os.close(descriptor)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


_received = _SignalRecorder()


def received_signal() -> int:
    """Return the number of a received signal in `END_SIGNALS` that user code handled; 0 if there is none."""
    if _received.descriptor is not None:
        with suppress(OSError):  # the pipe is empty, or user code has closed it
            _received.numbers += os.read(_received.descriptor, io.DEFAULT_BUFFER_SIZE)
    return next((number for number in _received.numbers if number in END_SIGNALS), 0)


def _set_up(output: int | None) -> None:
    if os.getpid() != os.getsid(0):
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _received.begin()
    with suppress(OSError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(max(OOM_SCORE, int(score.read_text(encoding="ascii")))), encoding="ascii")
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = _stream(descriptor)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable()
    reset_exit_handlers()


class _OutputFile(io.FileIO):
    """A file for output of a trial that ignores write errors, e.g. of a full disk."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(memoryview(content))


def _stream(descriptor: int) -> TextIO:
    raw = _OutputFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def reset_exit_handlers() -> None:
    """Discard exit handlers and child processes from before the fork, which belong to the parent."""
    atexit._clear()
    registered: Any = weakref.finalize
    for finalizer in list(registered._registry):
        finalizer.atexit = False
    atexit.register(registered._exitfunc)
    processes: Any = multiprocessing.process
    processes._children.clear()
    multiprocess: Any = multiprocessing.util
    atexit.register(multiprocess._exit_function)


def run_exit_handlers() -> None:
    """Run the exit handlers and flush the output; SIGALRM ends this process after `EXIT_S`."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, EXIT_S)
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()


def die_with_parent(number: int) -> None:
    """Make Linux send this process the signal `number` when its parent ends; do nothing elsewhere."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), number)
