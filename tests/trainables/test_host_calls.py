"""The number of Python function calls of a training step does not grow; on a GPU, kernels wait for them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UPPER_TOLERANCE, LOWER_TOLERANCE = 1.05, 1.15
"""Tolerances, because versions of Python and PyTorch differ in a few calls."""
BOUNDS = {
    ("gut", "compact"): 4140,
    ("gut", "batch"): 3530,
    ("gut", "none"): 7923,
    ("ut", "compact"): 11171,
    ("ut", "none"): 7248,
    ("gutlb", "compact"): 13384,
    ("tlb", "-"): 3484,
    ("transformer", "-"): 6188,
}
"""By model and early exit: most calls at the sizes of `tests.benchmarks.host_time`; bounds only decrease."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def call_counts() -> dict[tuple[str, str], int]:
    """Calls by model and early exit, counted in a new process, because shape checks here would add calls."""
    labels = sorted({label for label, _ in BOUNDS})
    command = [sys.executable, "-m", "tests.benchmarks.host_time", "--json", "--repeats", "0", "--only"]
    completed = subprocess.run([*command, *labels], cwd=ROOT, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(completed.stdout)["rows"]
    return {(row["system"], row["early exit"]): row["calls"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("case", BOUNDS, ids="-".join)
def test_training_step_keeps_within_its_call_bound(
    case: tuple[str, str], call_counts: dict[tuple[str, str], int]
) -> None:
    assert call_counts[case] <= UPPER_TOLERANCE * BOUNDS[case]
    assert BOUNDS[case] <= LOWER_TOLERANCE * call_counts[case], f"lower the bound to {call_counts[case]}"
