"""Run a function in a child process, so that its imports do not affect this process."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def run_in_child(call: Callable[[], Result]) -> Result:
    """Run `call` in a forked child process; return its result or raise its error.

    Without `os.fork`, or if this process uses CUDA, which does not survive a fork, `call` runs in this
    process.

    Args:
        call: The function. Its result must be picklable.

    Raises:
        AssertionError: The child ended without an answer.
    """
    if not hasattr(os, "fork") or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return call()
    # otherwise the first optimizer of each child imports it, which takes a second
    import_module("torch._dynamo")

    reader, writer = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks of processes with threads
        child = os.fork()
    if child == 0:
        reader.close()
        _send_result(call, writer)
    writer.close()
    with reader:
        try:
            result, error = reader.recv()
        except EOFError:
            result = error = None
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        end_text = f"signal {-status}" if status < 0 else f"exit code {status}"
        raise AssertionError(f"a trial must return, but its process was ended ({end_text})")
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _send_result(call: Callable[[], object], writer: "Connection[Any, Any]") -> None:
    """Send the result or error of `call`, and end this process."""
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    result, raised = None, None
    try:
        result = call()
    except BaseException as error:
        error.add_note("".join(traceback.format_exception(error)))
        raised = error
    try:
        ForkingPickler.loads(ForkingPickler.dumps((result, raised)))
    except Exception:  # errors with custom arguments may fail to unpickle
        result, raised = None, AssertionError("".join(traceback.format_exception(raised)))
    writer.send((result, raised))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
