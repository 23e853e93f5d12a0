"""Commands refuse impossible sizes without loading PyTorch."""

import re
import subprocess
import sys

import pytest

from tests.support.processes.commands import TINY, Shell

RUN_SCRIPT = """
import sys
from orchestrator.cli.main import run

try:
    run(sys.argv[1:])
finally:
    heavy_modules = {"torch", "ray", "mlflow", "optuna", "sqlalchemy", "pyarrow"}
    print("loaded:", *sorted(heavy_modules & set(sys.modules)))
"""


def run_refused_command(folder, *arguments):
    """Run a command in a new process, require that it loads no heavy module, and return its errors."""
    process = subprocess.run(
        [sys.executable, "-c", RUN_SCRIPT, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2, process.stderr
    assert process.stdout == "loaded:\n"
    return process.stderr


@pytest.mark.parametrize(
    "command", [("check", "tiny.yaml"), ("launch", "tiny.yaml", "--driver", "inline")], ids=" ".join
)
def test_command_refuses_a_huge_size_without_heavy_imports(tmp_path, command):
    folder = Shell.at(tmp_path, TINY.replace("steps: 4,", f"steps: {10**15},")).folder
    errors = run_refused_command(folder, *command)
    assert re.search(r"baseline\.train\.steps: .* 1,000,000,000, got 1,000,000,000,000,000\n", errors)
    assert errors.count("\n") == 2
    assert not (folder / "runs").exists()


def test_plan_refuses_a_huge_search_without_heavy_imports(tmp_path):
    folder = Shell.at(tmp_path).folder
    errors = run_refused_command(folder, "plan", "tiny.yaml", "search.trials_per_arm=100000000")
    assert re.search(r"search\.trials_per_arm: .* 1,000,000 ", errors)
