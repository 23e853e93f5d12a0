"""Run functions that import custom code in a forked child process."""

import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn, TypeVar

import psutil

from orchestrator.errors import HaltsweepError, InputError
from orchestrator.isolation.child import (
    LOWEST_DESCRIPTOR,
    die_with_parent,
    reset_exit_handlers,
    run_exit_handlers,
)
from orchestrator.isolation.memory_kills import MemoryKills
from orchestrator.isolation.messages import ChildEnded
from trainables.custom.extensions import adopt_imports, announce_imports, custom_code_error, import_state
from trainables.custom.source_files import OWN_PACKAGES

T = TypeVar("T")
POLL_S = 0.05
"""Seconds between two checks that the child still runs."""
GRACE_S = 5.0
"""Seconds to wait for the end of the child before it is interrupted, and again before it is killed."""
_parent_connection: Connection | None = None
"""Connection to the parent in a forked child and in processes that it forks; None in other processes."""


class CustomCodeCrashed(InputError):
    """The child process has ended before it sent a result."""

    code = "custom-code-crashed"


def run_forked(function: Callable[[], T]) -> T:
    """Return the result of `function`, which runs in a forked child that has the streams of this process.

    This process adopts the import path of the child, so that it finds the same modules. Call this function
    while no other thread runs. In a forked child, `function` is called directly.

    Args:
        function: Function whose result can be pickled.

    Raises:
        CustomCodeCrashed: The child ended without a result.
        HaltsweepError, OSError, KeyboardInterrupt: `function` raised it.
        InputError: Custom code raised another exception.
        SystemExit: `function` raised another exception, whose traceback the child printed.
    """
    if _parent_connection is not None:
        return function()
    receiving, sending = Pipe(duplex=False)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kills = MemoryKills()
    if not (process_id := os.fork()):
        _run_in_child(function, sending)
    sending.close()
    child = psutil.Process(process_id)
    try:
        with receiving:
            step, outcome = _receive(receiving, child)
        end = ChildEnded(child.wait())
    except BaseException:
        _wait_or_kill(child)
        raise
    if outcome is None:
        is_oom_kill = end.exit_code == -signal.SIGKILL and kills.was_oom_kill()
        remedy = "memory ran out: reduce its use, or free memory" if is_oom_kill else "correct the code"
        raise CustomCodeCrashed(
            "custom code must not end its process or close its files, but the process "
            f"{end.words} while {step}; {remedy}"
        )
    result: T
    result, error, imports = outcome
    if error is not None:
        raise error
    adopt_imports(*imports)
    return result


def report_step(step: str) -> None:
    """Send the current step of a forked child to its parent; do nothing in other processes."""
    if _parent_connection is not None:
        _parent_connection.send(step)


def _receive(receiving: Connection, child: psutil.Process) -> tuple[str, Any]:
    """Return the last step of the child, and its outcome or None if it ended without one.

    A child that has ended may leave the pipe open in processes that custom code has started.
    """
    step = "starting"
    with suppress(EOFError):
        while True:
            has_ended = child.status() == psutil.STATUS_ZOMBIE
            if receiving.poll(0 if has_ended else POLL_S):
                message = receiving.recv()
                if not isinstance(message, str):
                    return step, message
                step = message
            elif has_ended:
                break
    return step, None


def _wait_or_kill(child: psutil.Process) -> None:
    """Wait until the child has ended; interrupt and kill it if it takes long."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            child.wait(GRACE_S)
        except psutil.TimeoutExpired:
            child.send_signal(number)
    child.wait()


def _run_in_child(function: Callable[[], Any], sending: Connection) -> NoReturn:
    global _parent_connection  # noqa: PLW0603 - a process has one parent
    result = error = None
    try:
        die_with_parent(signal.SIGKILL)
        reset_exit_handlers()
        _parent_connection = Connection(
            fcntl.fcntl(sending.fileno(), fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR), readable=False
        )
        sending.close()
        announce_imports(report_step)
        try:
            result = function()
        except BaseException as raised_error:
            error = _error_for_parent(raised_error)
        _parent_connection.send((result, error, import_state()))
    except OSError:
        pass  # custom code has closed the connection
    except BaseException:  # the result cannot be pickled
        traceback.print_exc()
    finally:
        run_exit_handlers()
        os._exit(0)


def _error_for_parent(error: BaseException) -> BaseException:
    """Return an exception that the parent can unpickle without the classes of custom code."""
    package = type(error).__module__.partition(".")[0]
    if package in {"builtins", *OWN_PACKAGES} and isinstance(
        error, OSError | HaltsweepError | KeyboardInterrupt
    ):
        return error
    if isinstance(error, HaltsweepError):
        return InputError(str(error))
    if fault := custom_code_error(error):
        return InputError(fault)
    traceback.print_exception(error)
    return SystemExit(1)
