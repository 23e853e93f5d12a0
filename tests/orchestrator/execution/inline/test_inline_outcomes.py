"""Exceptions of a trial are classified as outcomes."""

import subprocess
import sys

import pytest
import torch

from orchestrator.execution.trial.worker_outcomes import MAX_TRACEBACK_LINES, classify_error
from orchestrator.trials import OutcomeKind


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
    ],
)
def test_memory_errors_are_classified_as_out_of_memory(error):
    assert classify_error(error).kind is OutcomeKind.OUT_OF_MEMORY


@pytest.mark.parametrize("error", [KeyError("out of memory"), RuntimeError("shape mismatch")])
def test_other_errors_are_crashes_with_type_message_and_location(error):
    with pytest.raises(type(error)) as caught:
        raise error
    outcome = classify_error(caught.value)
    assert outcome.kind is OutcomeKind.CRASHED
    assert outcome.reason.splitlines()[0] == f"{type(error).__name__}: {error}"
    assert "raise error" in outcome.reason


def test_long_traceback_retains_its_end():
    def recurse(levels):
        return recurse(levels - 1) if levels else 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        recurse(40)
    lines = classify_error(caught.value).reason.splitlines()
    assert len(lines) <= MAX_TRACEBACK_LINES + 1
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
