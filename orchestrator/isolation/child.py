"""What every child process does before and after its function."""

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
"""Descriptors from here on are not those of files that code of users closes by their numbers."""
OOM_SCORE = "500"
"""The system ends a child before the process that launched it when memory runs out."""
EXIT_S = 10
"""How long exit handlers of code of users may take."""
PR_SET_PDEATHSIG = 1


def run_child(order: ChildOrder, connection: int, output: int | None, files: LaunchFiles) -> None:
    """Call the function of `order` in this process, and end the process. Never returns.

    Args:
        order: What to run.
        connection: Descriptor of the connection that the function gets.
        output: Descriptor of the file for what the child prints; None: this process prints there already.
        files: What lay in the launch folder.
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
        pass  # nobody is connected any more
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
    """A file to print to: a full disk costs what is printed, not the trial."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(memoryview(content))


def _stream(descriptor: int) -> TextIO:
    raw = _Lenient(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def _forget_exit_handlers() -> None:
    """What was registered before the fork is the server's to clean up, and only once."""
    atexit._clear()
    registered: Any = weakref.finalize
    for finalizer in list(registered._registry):
        finalizer.atexit = False
    atexit.register(registered._exitfunc)
    multiprocess: Any = multiprocessing.util
    atexit.register(multiprocess._exit_function)


def die_with_parent(number: int) -> None:
    """Have the system send this process the signal when its parent ends; Linux alone can."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), number)
