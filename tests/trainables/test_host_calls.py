"""A training step calls no more functions of Python than it did: between kernels their time is the host's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOM, SLACK = 1.05, 1.15
"""Other versions of Python and PyTorch call a few more or fewer."""
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
"""System and early exit to the most calls at the sizes of `tests.benchmarks.host_time`; they only go down."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], int]:
    """By a process of its own: in this one every call may be checked, which takes calls too."""
    labels = sorted({label for label, _ in BOUNDS})
    command = [sys.executable, "-m", "tests.benchmarks.host_time", "--json", "--repeats", "0", "--only"]
    made = subprocess.run([*command, *labels], cwd=ROOT, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(made.stdout)["rows"]
    return {(row["system"], row["early exit"]): row["calls"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("case", BOUNDS, ids="-".join)
def test_a_step_asks_no_more_of_the_host_than_it_did(
    case: tuple[str, str], found: dict[tuple[str, str], int]
) -> None:
    assert found[case] <= ROOM * BOUNDS[case]
    assert BOUNDS[case] <= SLACK * found[case], f"lower the bound to {found[case]}"
