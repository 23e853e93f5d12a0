"""Threads that a fork would lose, counted in fresh interpreters."""

import subprocess
import sys

import pytest

COUNTED = """
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
        (THREAD, 1),
        (f"import numpy, pyarrow; {THREAD}", 1),
        ("import torch; torch.ones(600, 600) @ torch.ones(600, 600)", 1),
    ],
)
def test_threads_that_libraries_start_again_after_a_fork_do_not_count(code, expected, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    command = [sys.executable, "-c", COUNTED.format(code=code)]
    shown = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout.strip()) == (0, str(expected)), shown.stderr
