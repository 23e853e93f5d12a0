"""Convert an exception inside a trial to the outcome of the trial."""

import sys
import traceback

from orchestrator.execution.trial.worker_measurements import BadMeasurement
from orchestrator.files.redact import escape_unstorable, redact
from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Diverged, Infeasible

MAX_TRACEBACK_LINES = 12
MAX_REASON_LENGTH = 20_000
"""Maximum number of characters of a reason, since an exception may quote a complete tensor."""
_KIND_BY_ERROR = {Diverged: OutcomeKind.DIVERGED, Infeasible: OutcomeKind.INFEASIBLE}
_MEMORY_TEXTS = (
    "out of memory",
    "DefaultCPUAllocator: not enough memory",
    "DefaultCPUAllocator: can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class SourceCheckpointMissing(Exception):
    """Raised if the checkpoint for a posthoc trial is missing or damaged; a traceback would not help."""


def classify_error(error: BaseException) -> Outcome:
    """Return the outcome of the trial that raised `error`; its text is storable and contains no passwords."""
    if isinstance(error, BadMeasurement):
        return error.outcome
    message = _error_message(error)
    notes = "".join(f"; {_redact_text(note)}" for note in getattr(error, "__notes__", ()))
    text = f"{_redact_text(type(error).__name__)}: {message}{notes}".strip()
    for error_class, kind in _KIND_BY_ERROR.items():
        if isinstance(error, error_class):
            return Outcome(kind, message or text)
    if isinstance(error, SourceCheckpointMissing):
        return Outcome(OutcomeKind.CRASHED, message)
    if is_out_of_memory(error):
        return Outcome(OutcomeKind.OUT_OF_MEMORY, text)
    lines = _redact_text("".join(traceback.format_exception(error))).rstrip().splitlines()
    return Outcome(OutcomeKind.CRASHED, _shorten("\n".join([text, *lines[-MAX_TRACEBACK_LINES:]])))


def _error_message(error: BaseException) -> str:
    try:
        return _shorten(_redact_text(str(error)))
    except Exception:  # its `__str__` may be broken
        return "(no message: its __str__ raised an exception)"


def _redact_text(text: str) -> str:
    return escape_unstorable(redact(text))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_REASON_LENGTH else f"{text[:MAX_REASON_LENGTH]} ... (cut)"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` or an exception in its chain of causes reports exhausted memory."""
    seen_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        if isinstance(cause, MemoryError | _torch_memory_error()):
            return True
        if isinstance(cause, RuntimeError) and any(text in _error_message(cause) for text in _MEMORY_TEXTS):
            return True
        seen_ids.add(id(cause))
        cause = cause.__cause__
    return False


def _torch_memory_error() -> type[BaseException]:
    # Looked up instead of imported, since importing torch is slow for a workload without it.
    torch = sys.modules.get("torch")
    return getattr(torch, "OutOfMemoryError", MemoryError) if torch else MemoryError
