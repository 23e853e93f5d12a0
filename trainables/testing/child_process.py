"""Run a function in a child process, so that its imports do not affect this process."""

import os
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

import torch

Answer = TypeVar("Answer")


def in_child(call: Callable[[], Answer]) -> Answer:
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

    reading, writing = Pipe(duplex=False)
    child = get_context("fork").Process(target=_answer, args=(call, writing))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks of processes with threads
        child.start()
    writing.close()
    with reading:
        try:
            answer, error = reading.recv()
        except EOFError:
            answer = error = None
    child.join()
    if (status := child.exitcode) != 0:
        assert status is not None, "a joined process has ended"
        end_text = f"signal {-status}" if status < 0 else f"exit code {status}"
        raise AssertionError(f"a trial must return, but its process was ended ({end_text})")
    if error is not None:
        raise error
    return answer  # type: ignore[no-any-return]


def _answer(call: Callable[[], object], writing: "Connection[Any, Any]") -> None:
    """Send the result or error of `call`."""
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    answer, raised = None, None
    try:
        answer = call()
    except BaseException as error:
        error.add_note("".join(traceback.format_exception(error)))
        raised = error
    try:
        ForkingPickler.loads(ForkingPickler.dumps((answer, raised)))
    except Exception:  # errors with custom arguments may fail to unpickle
        answer, raised = None, AssertionError("".join(traceback.format_exception(raised)))
    writing.send((answer, raised))
