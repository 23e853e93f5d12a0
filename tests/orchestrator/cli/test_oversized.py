"""No command loads PyTorch to refuse a size that nothing could have."""

import subprocess
import sys

import pytest

from tests.support.processes.commands import TINY, Shell

HUGE = 10**15
RUN = """
import sys
from orchestrator.cli.main import run

try:
    run(sys.argv[1:])
finally:
    heavy = {"torch", "ray", "mlflow", "optuna", "sqlalchemy", "pyarrow"}
    print("loaded:", *sorted(heavy & set(sys.modules)))
"""
TOLD = "baseline.train.steps: must be at most 1,000,000,000, got 1,000,000,000,000,000\n"
CLOSING = "mend these first: no arm was built yet, so that further faults may be found then\n"


def refused(folder, *arguments):
    """What a command says on standard error, in a process of its own that loads nothing heavy."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == "loaded:\n"
    return done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("check", "huge.yaml"),
        ("plan", "tiny.yaml", f"baseline.train.steps={HUGE}"),
        ("plan", "profiles.yaml", "--profile", "short"),
        ("plan", "huge.yaml", "--calibrate"),
        ("launch", "huge.yaml", "--driver", "inline"),
        ("launch", "huge.yaml", "--dry-run"),
    ],
    ids=" ".join,
)
def test_each_command_refuses_it_with_next_to_nothing_loaded(tmp_path, command):
    shell = Shell.at(tmp_path)
    for name, text in (
        ("huge", TINY.replace("steps: 4,", f"steps: {HUGE},")),
        ("profiles", TINY.replace("train.steps: 2", f"train.steps: {HUGE}")),
    ):
        (shell.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    shown = refused(shell.folder, *command)
    assert shown.endswith(f"{TOLD}{CLOSING}")
    assert shown.count("\n") == 2
    assert not (shell.folder / "runs").exists()


def test_a_plan_that_nobody_could_make_loads_nothing_either(tmp_path):
    folder = Shell.at(tmp_path).folder
    assert refused(folder, "plan", "tiny.yaml", "search.trials_per_arm=100000000").endswith(
        "search.trials_per_arm: must ask for at most 1,000,000 trials over all arms, got 200,000,004: "
        "ask for fewer\n"
    )


@pytest.mark.slow
def test_of_many_specs_each_such_size_is_told(tmp_path):
    shell = Shell.at(tmp_path)
    names = [f"{number}.yaml" for number in range(6)]
    for name in names:
        (shell.folder / name).write_text(TINY.replace("steps: 4,", f"steps: {HUGE},"), encoding="utf-8")
    shown = shell.run_fresh("check", *names)  # which copies itself, where a fork would begin processes anew
    assert shown.code == 2
    assert shown.err.count(TOLD) == len(names)
