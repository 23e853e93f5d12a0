"""Planning imports and calls custom code."""

import os
import signal

import pytest

from orchestrator.plan.planner import plan_file
from tests.support.processes.commands import PATIENCE_S, Shell, wait_for
from tests.support.training_code.own_code import forgotten

SPEC = """\
name: own
question: Does it begin?
trainable: crashing:train
baseline: {lr: 0.1}
arms:
  fast: {why: ten times the rate, set: {lr: 1.0}}
confirm: {seeds: [1, 2], splits: []}
"""
CRASHING_CODE = """
import ctypes

def train(settings, trial):
    trial.report(1, {"valid/score": settings["lr"]})

def build(settings):
    ctypes.string_at(0)

haltsweep = {"build": build}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ending_call"), [("check", "string_at(0)"), ("launch", "CDLL(None)._exit(0)")]
)
def test_code_that_ends_its_process_is_refused(tmp_path, command, ending_call):
    shell = Shell.at(tmp_path)
    (shell.folder / "crashing.py").write_text(CRASHING_CODE.replace("string_at(0)", ending_call))
    (shell.folder / "own.yaml").write_text(SPEC)
    result = shell.run_fresh(command, "own.yaml")
    assert result.code == 2
    assert "its process" in result.err
    assert "Traceback" not in result.err
    assert not list(shell.folder.glob("runs/*"))


@pytest.mark.slow
def test_crash_during_import_names_the_line(tmp_path):
    shell = Shell.at(tmp_path)
    (shell.folder / "crashing.py").write_text("import os\n\nos.abort()\n")
    (shell.folder / "own.yaml").write_text(SPEC)
    result = shell.run_fresh("plan", "own.yaml")
    assert result.code == -signal.SIGABRT
    assert '/crashing.py", line 3' in result.err


@pytest.mark.slow
def test_command_does_not_wait_for_threads_of_custom_code(tmp_path):
    shell = Shell.at(tmp_path)
    start = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), name='theirs').start()\n"
    )
    (shell.folder / "crashing.py").write_text(start + "def train(settings, trial): ...\n")
    (shell.folder / "own.yaml").write_text(SPEC)
    result = shell.run_fresh("check", "own.yaml")
    assert result.code == 0
    assert "theirs" in result.err.splitlines()[-1], "the thread that still runs is named"


@pytest.mark.slow
def test_second_ctrl_c_ends_code_that_ignores_the_first(tmp_path):
    shell = Shell.at(tmp_path)
    code = """
import time
from pathlib import Path
while True:
    try:
        Path("is-imported").touch()
        time.sleep(1000)
    except BaseException:
        Path("has-ignored").touch()
"""
    (shell.folder / "crashing.py").write_text(code)
    (shell.folder / "own.yaml").write_text(SPEC)
    with shell.started_fresh("launch", "own.yaml") as process:
        for file in ("is-imported", "has-ignored"):
            wait_for((shell.folder / file).exists, process)
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == -signal.SIGINT
    assert not (shell.folder / "runs").exists()


COMPLETE_CODE = """
import time

from pydantic import BaseModel


class Config(BaseModel):
    lr: float


def build(settings):
    import torch
    return torch.nn.Linear(64, 10)


def example(settings):
    import torch
    return torch.ones(4, 64)


def train(settings, trial):
    trial.report(1, {"valid/score": settings["lr"]})

haltsweep = {"config": Config, "build": build, "example": example}
"""
IMPORT_STEP = "crashing:train to be imported"
CONFIG_STEP = "config of crashing:train to read settings"
BUILD_STEP = "build(settings) of crashing:train to return, of fast"
EXAMPLE_STEP = "example(settings) of crashing:train to return, of fast"
MODEL_STEP = "the model of build(settings) of crashing:train to return, of fast"


def test_each_call_of_custom_code_is_announced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crashing.py").write_text(COMPLETE_CODE)
    (tmp_path / "own.yaml").write_text(SPEC)
    progress = []
    with forgotten(tmp_path):
        plan_file(tmp_path / "own.yaml", on_progress=progress.append)
    positions = [
        progress.index(step) for step in (IMPORT_STEP, CONFIG_STEP, BUILD_STEP, EXAMPLE_STEP, MODEL_STEP)
    ]
    assert positions == sorted(positions)


def test_fault_of_custom_code_is_reported_once(tmp_path):
    shell = Shell.at(tmp_path)
    (shell.folder / "crashing.py").write_text("print('imported')\nraise RuntimeError('no such device')\n")
    (shell.folder / "own.yaml").write_text(SPEC)
    result = shell.run("launch", "own.yaml", "--driver", "inline")
    assert result.code == 2
    assert result.err.count("no such device") == 1
    assert result.out.count("imported") <= 1
