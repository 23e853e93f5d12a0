"""Planning imports and calls custom code in a child process."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from orchestrator.cli.planning import read_and_plan
from orchestrator.plan.planner import plan_file
from orchestrator.plan.serialise import to_json
from tests.support.processes.commands import PATIENCE_S, Shell, wait_for
from tests.support.training_code.own_code import importable_files

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
def test_launch_of_code_that_crashes_its_process_is_refused(tmp_path):
    shell = Shell.at(tmp_path)
    (shell.folder / "crashing.py").write_text(CRASHING_CODE)
    (shell.folder / "own.yaml").write_text(SPEC)
    result = shell.run_fresh("launch", "own.yaml")
    assert result.code == 2
    assert "own.yaml:" in result.err
    assert "Traceback" not in result.err
    assert not list(shell.folder.glob("runs/*"))


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
    assert "starts 1 thread" in result.err


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


def test_custom_code_cannot_change_the_planning_process(tmp_path, haltsweep):
    code = """
import os, threading, time
os.environ["CUSTOM"] = "1"
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
def train(settings, trial): ...
os.chdir("/")
"""
    with importable_files(tmp_path, {"crashing.py": code, "own.yaml": SPEC}):
        source, plan = read_and_plan(Path("own.yaml"))
        assert "crashing" not in sys.modules
        assert (Path.cwd(), os.environ.get("CUSTOM")) == (tmp_path, None)
        (tmp_path / "crashing.py").write_text("def train(settings, trial): ...\n")
        expected_source, expected_plan = plan_file(Path("own.yaml"))
        assert (source, to_json(plan)) == (expected_source, to_json(expected_plan))


@pytest.mark.slow
def test_child_process_ends_when_its_command_is_killed(tmp_path):
    shell = Shell.at(tmp_path)
    pid_file = shell.folder / "pid_file"
    # The last point shows that the file is complete.
    code = f"import os, time\nopen({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}.')\ntime.sleep(1000)\n"
    (shell.folder / "crashing.py").write_text(code)
    (shell.folder / "own.yaml").write_text(SPEC)
    with shell.started_fresh("plan", "own.yaml") as process:
        wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith("."), process)
        child = psutil.Process(int(pid_file.read_text()[:-1]))
        process.kill()
    psutil.wait_procs([child], PATIENCE_S)
    assert not child.is_running()
