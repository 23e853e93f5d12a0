"""Sets up every child process before it calls its function, and cleans up afterwards."""

import atexit
import ctypes
import faulthandler
import fcntl
import importlib
import io
import multiprocessing.util
import os
import signal
import sys
import traceback
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from orchestrator.isolation.messages import ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles

HIGH = 200
"""Lowest descriptor for our files, above the numbers that user code may close."""
OOM_SCORE = "500"
"""When memory runs out, Linux kills the process with the higher score first: a child before its launcher."""
EXIT_S = 10
"""Seconds that exit handlers of user code may take."""
PR_SET_PDEATHSIG = 1


def run_child(order: ChildOrder, connection: int, output: int | None, files: LaunchFiles) -> None:
    """Call the function of `order` in this process, and end the process. Never returns.

    Args:
        order: What to run.
        connection: Descriptor of the connection that the function gets.
        output: Descriptor of the file for output of the child; None if standard output is that file already.
        files: Files of the launch folder.
    """
    exit_code = 1
    try:
        die_with_parent(signal.SIGKILL)
        _set_up(output)
        module, _, name = order.target.partition(":")
        function = getattr(importlib.import_module(module), name)
        own = Connection(fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, HIGH))
        os.close(connection)
        function(order.payload, own, files)
        exit_code = 0
    except EOFError:
        pass  # the other end was closed
    except BaseException:
        traceback.print_exc()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, EXIT_S)
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(exit_code)


def _set_up(output: int | None) -> None:
    if os.getpid() != os.getsid(0):
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = _stream(descriptor)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable()
    _forget_exit_handlers()


class _Lenient(io.FileIO):
    """A file for output of a trial. If the disk is full, the output is lost, but the trial goes on."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(memoryview(content))


def _stream(descriptor: int) -> TextIO:
    raw = _Lenient(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def _forget_exit_handlers() -> None:
    """Remove exit handlers that the server registered before the fork, since the server runs them itself."""
    atexit._clear()
    registered: Any = weakref.finalize
    for finalizer in list(registered._registry):
        finalizer.atexit = False
    atexit.register(registered._exitfunc)
    multiprocess: Any = multiprocessing.util
    atexit.register(multiprocess._exit_function)


def die_with_parent(number: int) -> None:
    """Have Linux send this process the signal `number` when its parent ends; elsewhere do nothing."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), number)
