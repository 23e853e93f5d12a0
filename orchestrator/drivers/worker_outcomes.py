"""What an exception inside a trial means."""

import sys
import traceback

from orchestrator.drivers.silence import Silent
from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Diverged

TRACEBACK_LINES = 12
_MEMORY_TEXTS = (
    "out of memory",
    "DefaultCPUAllocator: not enough memory",
    "DefaultCPUAllocator: can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def outcome_of(error: Exception) -> Outcome:
    """The end of the trial that raised `error`."""
    if isinstance(error, Diverged):
        return Outcome(OutcomeKind.DIVERGED, str(error))
    if isinstance(error, Silent):
        return Outcome(OutcomeKind.TIMED_OUT, str(error))
    text = f"{type(error).__name__}: {error}".strip()
    if is_out_of_memory(error):
        return Outcome(OutcomeKind.OUT_OF_MEMORY, text)
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return Outcome(OutcomeKind.CRASHED, "\n".join([text, *lines[-TRACEBACK_LINES:]]))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error`, or what it was raised from, says that memory ran out."""
    cause = error.__cause__
    if isinstance(error, MemoryError | _torch_error()):
        return True
    if isinstance(error, RuntimeError) and any(text in str(error) for text in _MEMORY_TEXTS):
        return True
    return cause is not None and is_out_of_memory(cause)


def _torch_error() -> type[BaseException]:
    # Looked up, not imported: a workload without torch must not pay for it.
    torch = sys.modules.get("torch")
    return getattr(torch, "OutOfMemoryError", MemoryError) if torch else MemoryError
