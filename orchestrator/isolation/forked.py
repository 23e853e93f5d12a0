"""Run a function that imports custom code in a forked child, which cannot crash or change this process."""

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
from orchestrator.isolation.child import die_with_parent, remove_exit_handlers, run_exit_handlers
from orchestrator.isolation.memory_kills import MemoryKills
from orchestrator.isolation.messages import ChildEnded
from trainables.custom.extensions import adopt_imports, custom_code_error, import_state

T = TypeVar("T")
POLL_S = 0.05
"""Seconds between two checks whether the child still runs; its result is received at once."""
GRACE_S = 5.0
"""Seconds that the child has to end after Ctrl-C, which a terminal sends to the child too."""
_to_parent: Connection | None = None
"""Connection of a forked child to its parent; None in other processes."""


class CustomCodeCrashed(InputError):
    """Custom code has ended its process, by a signal or an exit."""

    code = "custom-code-crashed"


def run_forked(function: Callable[[], T]) -> T:
    """Return the result of `function`, which runs in a forked child that has the streams of this process.

    This process adopts the import path of the child, so that it finds the same modules. Call this function
    while no other thread runs. In a forked child, `function` is called directly.

    Args:
        function: Function whose result can be pickled.

    Raises:
        CustomCodeCrashed: The child ended without a result.
        BaseException: `function` raised it. The child prints unexpected exceptions, which exit with 1 here.
    """
    if _to_parent is not None:
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
        _end(child)
        raise
    if outcome is None:
        is_oom_kill = end.exit_code == -signal.SIGKILL and kills.was_oom_kill()
        remedy = "memory ran out: make it use less, or free memory" if is_oom_kill else "correct it"
        raise CustomCodeCrashed(
            f"custom code must run to its end, but its process {end.words} while {step}; {remedy}"
        )
    result, error, imports = outcome
    if error is not None:
        raise error
    adopt_imports(*imports)
    returned: T = result
    return returned


def report_step(step: str) -> None:
    """Send the parent of a forked child the current step; do nothing in other processes."""
    if _to_parent is not None:
        _to_parent.send(step)


def _receive(receiving: Connection, child: psutil.Process) -> tuple[str, Any]:
    """Return the last step of the child, and its outcome or None if it ended without one."""
    step = "starting"
    with suppress(EOFError):
        while receiving.poll(POLL_S) or child.status() != psutil.STATUS_ZOMBIE or receiving.poll():
            if receiving.poll():
                message = receiving.recv()
                if not isinstance(message, str):
                    return step, message
                step = message
    return step, None


def _end(child: psutil.Process) -> None:
    """Wait until the child has ended; interrupt and kill it if it takes long."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            child.wait(GRACE_S)
        except psutil.TimeoutExpired:
            child.send_signal(number)
    child.wait()


def _run_in_child(function: Callable[[], Any], sending: Connection) -> NoReturn:
    global _to_parent  # noqa: PLW0603 - a process has one parent
    result = error = None
    try:
        die_with_parent(signal.SIGKILL)
        remove_exit_handlers()
        _to_parent = sending
        try:
            result = function()
        except BaseException as raised_error:
            error = _error_for_parent(raised_error)
        sending.send((result, error, import_state()))
    except BaseException:  # the result cannot be pickled
        traceback.print_exc()
    finally:
        run_exit_handlers()
        os._exit(0)


def _error_for_parent(error: BaseException) -> BaseException:
    """Return an exception that the parent can handle, which does not have the classes of custom code."""
    is_system_error = isinstance(error, OSError) and type(error).__module__ == "builtins"
    if is_system_error or isinstance(error, HaltsweepError | KeyboardInterrupt):
        return error
    if fault := custom_code_error(error):
        return InputError(fault)
    traceback.print_exception(error)
    return SystemExit(1)
