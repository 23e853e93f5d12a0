"""Count the threads that a fork would lose, in new interpreters."""

import subprocess
import sys

import pytest

COUNT_CODE = """
from trainables.custom.fork_safety import num_unforkable_threads
before = num_unforkable_threads()
{code}
print(num_unforkable_threads() - before)
"""
THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy, pandas, pyarrow, scipy.linalg, sklearn.linear_model", 0),
        (f"import numpy, pyarrow; {THREAD}", 1),
        ("import torch; torch.ones(600, 600) @ torch.ones(600, 600)", 1),
    ],
)
def test_count_ignores_threads_that_libraries_restart_after_a_fork(code, expected, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    command = [sys.executable, "-c", COUNT_CODE.format(code=code)]
    completed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (completed.returncode, completed.stdout.strip()) == (0, str(expected)), completed.stderr
