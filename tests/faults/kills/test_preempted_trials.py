"""Trials that are killed from outside more often than their retries still finish."""

import os
import signal
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.read import trials
from tests.support.processes.commands import Shell, wait_for

pytestmark = pytest.mark.slow
KILLS = 4
"""More than the retries of a trial that dies by itself."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
CODE = """
import os, time
from pathlib import Path

def train(settings, trial):
    if settings["waits"] and trial.seed == 1:
        folder = Path(os.environ["NOTES"])
        with open(folder / "pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while not (folder / "go").exists():
            time.sleep(0.01)
    trial.report(1, {"test/x": 0.5})
"""
SPEC = """
name: preempted
question: Are trials that are killed from outside finished?
trainable: job:train
baseline: {waits: false}
arms: {waiting: {why: killed before its first report, set: {waits: true}}}
confirm: {seeds: [1, 2], splits: [test]}
"""


def attempt_pids(folder: Path) -> list[int]:
    notes = folder / "pids"
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


@pytest.mark.parametrize("driver", ["inline", "ray"])
def test_trial_killed_often_before_its_first_report_finishes(tmp_path, monkeypatch, driver):
    monkeypatch.setenv("NOTES", str(tmp_path))
    shell = Shell.at(tmp_path, SPEC)
    (shell.folder / "job.py").write_text(CODE)
    with shell.started("launch", "tiny.yaml", "--driver", driver) as process:
        for count in range(1, KILLS + 1):
            wait_for(lambda: len(attempt_pids(tmp_path)) == count, process)  # noqa: B023 - called at once
            os.kill(attempt_pids(tmp_path)[-1], SIGNALS[count % 2])
        wait_for(lambda: len(attempt_pids(tmp_path)) == KILLS + 1, process)
        (tmp_path / "go").touch()
        process.communicate()
        assert process.returncode == 0
    rows = trials("preempted", runs=shell.folder / "runs").to_pylist()
    assert {row["outcome"] for row in rows} == {"finished"}
    with Ledger.open(SweepFolder(shell.folder / "runs" / "preempted").ledger_url, "preempted") as ledger:
        ends = [event.payload for event in ledger.events() if event.kind is EventKind.ENDED]
    killed = [end for end in ends if end["kind"] == "stopped"]
    assert len(killed) == KILLS
    assert all(end["outside"] for end in killed)
