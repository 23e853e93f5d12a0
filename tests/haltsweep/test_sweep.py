"""Sweeps from Python are planned, run, resumed and reported, with functions of scripts and local ones."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from haltsweep import Sweep
from orchestrator.errors import InputError
from tests.support.training_code.own_code import forgotten

SPEC = {
    "name": "mine",
    "question": "Does x matter?",
    "baseline": {"x": 0.0},
    "arms": {"one": {"why": "another", "set": {"x": np.float64(1.0)}}},
    "confirm": {"seeds": (1, 2, 3), "splits": ["test"]},
    "resources": {"cpus": 1},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield tmp_path


def make_train(offset):
    def train(settings, trial):
        metrics = {f"{split}/loss": settings["x"] + offset + trial.seed / 100 for split in trial.splits}
        trial.report(1, {"valid/loss": settings["x"]} | metrics)

    return train


def test_local_function_is_planned_and_faults_name_the_spec(folder):
    sweep = Sweep(SPEC, make_train(0))
    assert sweep.plan().trainable == "haltsweep_code.mine:trainable"
    assert [arm.name for arm in sweep.plan().arms] == ["baseline", "one"]
    invalid_sweep = Sweep(SPEC | {"arms": {"one": {"why": "a slip", "set": {"y": 1}}}}, make_train(0))
    with pytest.raises(InputError, match=r"^spec: arms\.one\.set\.y: "):
        invalid_sweep.plan()


@pytest.mark.parametrize(("spec", "trainable", "expected"), [({}, make_train(0), "name"), (SPEC, 3, "3")])
def test_invalid_sweep_is_refused(spec, trainable, expected):
    with pytest.raises(InputError, match=expected):
        Sweep(spec, trainable).plan()


@pytest.mark.slow
def test_sweep_is_run_changed_and_resumed(folder):
    """Trials get the variables that a function closes over."""
    assert Sweep(SPEC, make_train(5)).run("inline", tracking="none").exit_code == 0
    report = Sweep(SPEC, make_train(5)).report()
    losses = dict(
        zip(report.trials["trial_id"].to_pylist(), report.trials["metric.test/loss"].to_pylist(), strict=True)
    )
    assert sorted(losses.values()) == pytest.approx([5.01, 5.02, 5.03, 6.01, 6.02, 6.03])
    assert any("one" in verdict.line for verdict in report.summary.verdicts)
    assert (folder / "runs" / "mine" / "report" / "report.html").is_file()
    assert Sweep(SPEC, make_train(5)).run("inline", tracking="none").exit_code == 0  # all trials have ended
    with pytest.raises(InputError, match="mine"):
        Sweep(SPEC | {"question": "Another?"}, make_train(5)).run("inline", tracking="none")


SCRIPT = """
from haltsweep import Sweep

def train(settings, trial):
    trial.report(1, {"valid/loss": settings["x"], "test/loss": settings["x"] + trial.seed / 100})

spec = {"name": "script", "question": "Does x matter?", "baseline": {"x": 0.0},
        "arms": {"one": {"why": "another", "set": {"x": 1.0}}},
        "confirm": {"seeds": [1, 2, 3], "splits": ["test"]}, "resources": {"cpus": 1}}
GUARD
    sweep = Sweep(spec, train)
    print(sweep.plan().trainable, sweep.run("DRIVER", tracking="none").left)
    print(sorted(sweep.report().trials["metric.test/loss"].to_pylist()))
"""


@pytest.mark.slow
def test_function_of_a_script_is_imported_from_its_file(folder):
    code = SCRIPT.replace("GUARD", 'if __name__ == "__main__":').replace("DRIVER", "ray")
    (folder / "study.py").write_text(code)
    process = subprocess.run(
        [sys.executable, "study.py"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.stdout.splitlines()[-2:] == ["study:train 0", "[0.01, 0.02, 0.03, 1.01, 1.02, 1.03]"], (
        process
    )


def test_script_that_starts_a_sweep_on_import_is_refused(folder):
    (folder / "study.py").write_text(SCRIPT.replace("GUARD", "if True:").replace("DRIVER", "inline"))
    with pytest.raises(InputError, match='if __name__ == "__main__":'):
        runpy.run_path("study.py", run_name="__main__")
    assert not Path("runs").exists()
