"""Commands refuse impossible sizes without loading PyTorch."""

import subprocess
import sys

import pytest

from tests.support.processes.commands import TINY, Shell

HUGE_SIZE = 10**15
RUN_SCRIPT = """
import sys
from orchestrator.cli.main import run

try:
    run(sys.argv[1:])
finally:
    heavy_modules = {"torch", "ray", "mlflow", "optuna", "sqlalchemy", "pyarrow"}
    print("loaded:", *sorted(heavy_modules & set(sys.modules)))
"""
SIZE_MESSAGE = "baseline.train.steps: must be at most 1,000,000,000, got 1,000,000,000,000,000\n"
CLOSING_MESSAGE = "Correct these sizes first. Other faults of the arms show only when the arms are built.\n"


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
    "command",
    [
        ("check", "huge.yaml"),
        ("plan", "tiny.yaml", f"baseline.train.steps={HUGE_SIZE}"),
        ("plan", "profiles.yaml", "--profile", "short"),
        ("plan", "huge.yaml", "--calibrate"),
        ("launch", "huge.yaml", "--driver", "inline"),
        ("launch", "huge.yaml", "--dry-run"),
    ],
    ids=" ".join,
)
def test_command_refuses_a_huge_size_without_heavy_imports(tmp_path, command):
    shell = Shell.at(tmp_path)
    for name, text in (
        ("huge", TINY.replace("steps: 4,", f"steps: {HUGE_SIZE},")),
        ("profiles", TINY.replace("train.steps: 2", f"train.steps: {HUGE_SIZE}")),
    ):
        (shell.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    errors = run_refused_command(shell.folder, *command)
    assert errors.endswith(f"{SIZE_MESSAGE}{CLOSING_MESSAGE}")
    assert errors.count("\n") == 2
    assert not (shell.folder / "runs").exists()


def test_plan_refuses_a_huge_search_without_heavy_imports(tmp_path):
    folder = Shell.at(tmp_path).folder
    assert run_refused_command(folder, "plan", "tiny.yaml", "search.trials_per_arm=100000000").endswith(
        "search.trials_per_arm: must ask for at most 1,000,000 trials over all arms, got 200,000,004: "
        "ask for fewer\n"
    )


@pytest.mark.slow
def test_check_reports_a_huge_size_of_every_spec(tmp_path):
    shell = Shell.at(tmp_path)
    names = [f"{number}.yaml" for number in range(6)]
    for name in names:
        (shell.folder / name).write_text(TINY.replace("steps: 4,", f"steps: {HUGE_SIZE},"), encoding="utf-8")
    result = shell.run_fresh("check", *names)  # a fresh process, because a fork would start new processes
    assert result.code == 2
    assert result.err.count(SIZE_MESSAGE) == len(names)
