"""`haltsweep resume --retry` runs failed trials again, and all outputs follow."""

import json
from collections import Counter

import pytest

from orchestrator import read
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import Shell
from tests.support.training_code.own_code import forgotten

INLINE = ("--driver", "inline")
TRAINING_CODE = """
from pathlib import Path

def train(settings, trial):
    has_data = Path(__file__).with_name("data.csv").exists()
    for step in (1, 2, 3):
        if step == settings["fails_at"] and trial.seed == 2 and not has_data:
            raise FileNotFoundError("data.csv: the mount was away")
        metrics = {"valid/score": settings["x"] + trial.seed / 100 + has_data, "train/step": step}
        if trial.phase == "confirm" and step == 3:
            metrics["test/score"] = settings["x"] + trial.seed / 100
        trial.report(step, metrics)
"""
SPEC = """
name: retries
question: Does x matter?
trainable: retries:train
baseline: {x: 0.0, fails_at: 1}
arms: {plus: {why: more, set: {x: 1.0}}}
confirm: {seeds: [1, 2, 3], splits: [test]}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "retries.yaml").write_text(SPEC)
    (tmp_path / "retries.py").write_text(TRAINING_CODE)
    return tmp_path


@pytest.fixture
def run(haltsweep, untracked, folder):
    """Return a function that runs a command with newly imported training code."""

    def run_command(*arguments):
        with forgotten(folder):
            return haltsweep(*arguments)

    return run_command


def read_events(folder, *kinds):
    with Ledger.open(SweepFolder(folder / "runs/retries").ledger_url, "retries") as ledger:
        return [event for event in ledger.events() if not kinds or event.kind in kinds]


def count_starts(folder):
    return Counter(event.trial_id for event in read_events(folder, EventKind.STARTED))


def test_retry_runs_only_failed_trials_and_updates_all_outputs(run, folder):
    assert run("launch", "retries.yaml", *INLINE).code == 1, "confirm trials failed"
    (folder / "data.csv").touch()
    assert run("resume", "retries", "--retry", "failed").code == 0
    trials = {row["trial_id"]: row for row in read.trials("retries").to_pylist()}
    assert {row["outcome"] for row in trials.values()} == {"finished"}
    retried_trials = {trial_id for trial_id, row in trials.items() if row["seed"] == 2}
    assert count_starts(folder) == {trial_id: 1 + (trial_id in retried_trials) for trial_id in trials}
    assert {event.trial_id for event in read_events(folder, EventKind.RETRIED)} == retried_trials
    report = json.loads((folder / "runs/retries/report/report.json").read_text())
    assert {row["trial_id"] for row in report["retried"]} == retried_trials
    assert report["notices"][0].startswith("2 ")
    assert [verdict["kind"] for verdict in report["verdicts"]] == ["higher"]
    assert run("resume", "retries", "--retry", "failed").code == 0
    assert count_starts(folder).total() == 8


@pytest.mark.parametrize(
    ("selection", "message"),
    [("nonsense", "'nonsense'"), ("baseline/confirm/0", "baseline/confirm/0 (finished)")],
)
def test_retry_refuses_invalid_selections_and_lists_the_failures(run, folder, selection, message):
    run("launch", "retries.yaml", *INLINE)
    events_before = read_events(folder)
    result = run("resume", "retries", "--retry", selection)
    assert result.code == 2
    assert message in result.err
    assert "baseline/confirm/1: crashed" in result.err
    assert read_events(folder) == events_before


@pytest.mark.parametrize("options", [(), ("--from-scratch",)])
def test_retry_continues_from_the_last_checkpoint_by_default(run, folder, options):
    overrides = ("baseline.fails_at=3", "resources.checkpoint_seconds=0.000001")
    run("launch", "retries.yaml", *overrides, *INLINE)
    (folder / "data.csv").touch()
    assert run("resume", "retries", "--retry", "failed", *options).code == 0
    restart_steps = [event.payload["step"] for event in read_events(folder, EventKind.RETRIED)]
    assert restart_steps == ([-1, -1] if options else [2, 2])
    rows = [row for row in read.measurements("retries").to_pylist() if row["metric"] == "valid/score"]
    scores = {(row["arm"], row["step"]): round(row["value"], 2) for row in rows if row["seed"] == 2}
    early = {("baseline", 1): 0.02, ("baseline", 2): 0.02, ("plus", 1): 1.02, ("plus", 2): 1.02}
    late = {("baseline", 3): 1.02, ("plus", 3): 2.02}
    assert scores == {key: value + bool(options) for key, value in early.items()} | late
    assert len(rows) == 18, "a repeated measurement counts once"


def test_failures_can_be_retried_by_their_kind(run, folder):
    fault = TRAINING_CODE.replace("FileNotFoundError(", "MemoryError(")
    (folder / "retries.py").write_text(fault)
    assert run("launch", "retries.yaml", *INLINE).code == 1
    (folder / "data.csv").touch()
    run("resume", "retries", "--retry", "timed_out")
    assert {row["outcome"] for row in read.trials("retries").to_pylist()} == {"finished", "out_of_memory"}
    assert run("resume", "retries", "--retry", "out_of_memory").code == 0
    assert {row["outcome"] for row in read.trials("retries").to_pylist()} == {"finished"}


def test_retry_accepts_corrected_code_if_only_failed_trials_ran_the_old_code(run, folder):
    (folder / "retries.py").write_text(TRAINING_CODE.replace("trial.seed == 2 and ", ""))
    result = run("launch", "retries.yaml", *INLINE)
    assert result.code == 1
    assert len(count_starts(folder)) < 6, "three equal errors of an arm stop the sweep"
    assert json.loads(run("status", "retries", "--json").out)["failing"]
    assert run("resume", "retries").code == 1, "the error still stands"
    (folder / "retries.py").write_text(TRAINING_CODE.replace("trial.seed == 2 and ", "False and "))
    result = run("resume", "retries", "--retry", "failed")
    assert result.code == 0, result
    assert read.report("retries").left == 0


@pytest.mark.slow
def test_retry_reopens_the_mlflow_run(tmp_path):
    from tests.support.mlflow.mlflow_db import runs

    shell = Shell.at(tmp_path, SPEC, tracked=True)
    (shell.folder / "tiny.yaml").rename(shell.folder / "retries.yaml")
    (shell.folder / "retries.py").write_text(TRAINING_CODE)
    result = shell.run("launch", "retries.yaml", "baseline.fails_at=3", *INLINE)
    assert result.code == 1, result
    (shell.folder / "data.csv").touch()
    result = shell.run("resume", "retries", "--retry", "failed")
    assert result.code == 0, result
    mlflow_runs = runs(shell.folder / "runs" / "mlflow.db", "retries")
    assert {run.status for run in mlflow_runs.values()} == {"FINISHED"}
    assert len([key for key in mlflow_runs if key.startswith("trial/")]) == 6
    result = shell.run("verify", "retries")
    assert result.code == 0, result
