"""Exceptions of a trial are classified as outcomes."""

import subprocess
import sys

import pytest
import torch

from orchestrator.execution.trial.worker_outcomes import TRACEBACK_LINES, classify_error
from orchestrator.trials import OutcomeKind
from trainables.protocol import Diverged


def raise_and_catch(error, cause=None):
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def out_of_memory_error():
    try:
        torch.empty(1 << 60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("this machine has an exabyte of memory")


def test_divergence_names_value_and_step():
    outcome = classify_error(Diverged(7, float("inf")))
    assert outcome.kind is OutcomeKind.DIVERGED
    assert "loss=inf at step=7" in outcome.reason


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        out_of_memory_error(),
    ],
    ids=lambda error: type(error).__name__ + str(error)[:20],
)
def test_memory_errors_are_classified_as_out_of_memory(error):
    outcome = classify_error(error)
    assert outcome.kind is OutcomeKind.OUT_OF_MEMORY
    assert outcome.reason.startswith(type(error).__name__)


def test_memory_error_as_a_cause_is_classified_as_out_of_memory():
    error = raise_and_catch(
        RuntimeError("the batch could not be made"), raise_and_catch(MemoryError("no room"))
    )
    assert classify_error(error).kind is OutcomeKind.OUT_OF_MEMORY


@pytest.mark.parametrize("error", [KeyError("out of memory"), RuntimeError("shape mismatch"), ValueError("")])
def test_other_errors_are_crashes_with_type_message_and_location(error):
    outcome = classify_error(raise_and_catch(error))
    assert outcome.kind is OutcomeKind.CRASHED
    assert outcome.reason.splitlines()[0] == f"{type(error).__name__}: {error}".strip()
    assert "raise error from cause" in outcome.reason


def test_long_traceback_retains_its_end():
    def recurse(levels):
        return recurse(levels - 1) if levels else 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        recurse(40)
    lines = classify_error(caught.value).reason.splitlines()
    assert len(lines) <= TRACEBACK_LINES + 1
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_worker_modules_import_no_heavy_library():
    program = (
        "import sys; from orchestrator.execution import inline; "
        "from orchestrator.execution.trial import worker; "
        "from orchestrator.execution.trial.worker_outcomes import classify_error; "
        "classify_error(MemoryError('full')); "
        "heavy = {'torch', 'ray', 'optuna', 'mlflow', 'sqlalchemy'}; found = heavy & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
