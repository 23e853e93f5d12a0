"""Failed trials run again: `resume --retry`, what it refuses, and what everybody says afterwards."""

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
CODE = """
import time
from pathlib import Path

def train(settings, trial):
    there = Path(__file__).with_name("data.csv").exists()
    for step in (1, 2, 3):
        if step == settings["fails_at"] and trial.seed == 2 and not there:
            raise FileNotFoundError("data.csv: the mount was away")
        found = {"valid/score": settings["x"] + trial.seed / 100 + there, "train/step": step}
        if trial.phase == "confirm" and step == 3:
            found["test/score"] = settings["x"] + trial.seed / 100
        time.sleep(settings["pause"])
        trial.report(step, found)
"""
SPEC = """
name: mended
question: Does x matter?
trainable: mended:train
baseline: {x: 0.0, fails_at: 1, pause: 0.0}
arms: {plus: {why: more, set: {x: 1.0}}}
confirm: {seeds: [1, 2, 3], splits: [test]}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mended.yaml").write_text(SPEC)
    (tmp_path / "mended.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def run(haltsweep, untracked, folder):
    """A command as in a new process, which imports the code again."""

    def answer(*arguments):
        with forgotten(folder):
            return haltsweep(*arguments)

    return answer


def events(folder, *kinds):
    with Ledger.open(SweepFolder(folder / "runs/mended").ledger_url, "mended") as ledger:
        return [event for event in ledger.events() if not kinds or event.kind in kinds]


def starts(folder):
    return Counter(event.trial_id for event in events(folder, EventKind.STARTED))


def test_only_the_failed_trials_run_again_and_all_agree_afterwards(run, folder):
    assert run("launch", "mended.yaml", *INLINE).code == 1, "confirm trials failed"
    before = json.loads((folder / "runs/mended/report/report.json").read_text())
    assert "extend mended --seeds 1" in " ".join(before["notices"]), "remedies are named"
    (folder / "data.csv").touch()
    assert run("resume", "mended", "--retry", "failed").code == 0
    trials = {row["trial_id"]: row for row in read.trials("mended").to_pylist()}
    assert {row["outcome"] for row in trials.values()} == {"finished"}
    retried = {trial_id for trial_id, row in trials.items() if row["seed"] == 2}
    assert starts(folder) == {trial_id: 1 + (trial_id in retried) for trial_id in trials}
    assert {event.trial_id for event in events(folder, EventKind.RETRIED)} == retried
    report = json.loads((folder / "runs/mended/report/report.json").read_text())
    assert {row["trial_id"] for row in report["retried"]} == retried
    assert all(len(row["at"]) == 1 for row in report["retried"])
    assert report["notices"][0].startswith("2 failed trials ran again (")
    assert [verdict["kind"] for verdict in report["verdicts"]] == ["higher"]
    page = (folder / "runs/mended/report/report.md").read_text()
    assert page.index("2 failed trials ran again") < page.index("## Answer")
    assert json.loads(run("list", "--json").out)[0]["failed"] == 0
    verified = run("verify", "mended")
    assert verified.code == 0, verified
    again = run("resume", "mended", "--retry", "failed")
    assert (again.code, "nothing to retry" in again.out) == (0, True)
    assert starts(folder).total() == 8


def test_a_trial_that_fails_again_can_be_retried_by_its_name(run, folder):
    run("launch", "mended.yaml", *INLINE)
    (name,) = [row["trial_id"] for row in read.trials("mended").to_pylist() if row["seed"] == 2][:1]
    assert run("resume", "mended", "--retry", "crashed").code == 1
    assert run("resume", "mended", "--retry", f"timed_out,{name[:8]}", "--retry", "plus/confirm/1").code == 1
    assert Counter(starts(folder).values()) == {1: 4, 3: 2}
    report = read.report("mended")
    assert [len(each.at) for each in report.retried] == [2, 2]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nonsense", "got 'nonsense', which names none"),
        ("baseline/confirm/0", "baseline/confirm/0 (finished) is none"),
        (",", "must say which trials"),
    ],
)
def test_what_cannot_be_retried_is_refused_with_what_there_is(run, folder, asked, told):
    run("launch", "mended.yaml", *INLINE)
    before = events(folder)
    result = run("resume", "mended", "--retry", asked)
    assert result.code == 2
    assert told in result.err
    assert "Traceback" not in result.err
    if asked != ",":
        assert "baseline/confirm/1: crashed" in result.err
    assert events(folder) == before


@pytest.mark.parametrize("more", [(), ("--from-scratch",)])
def test_a_retry_goes_on_from_the_last_checkpoint_unless_told_otherwise(run, folder, more):
    every = ("baseline.fails_at=3", "resources.checkpoint_seconds=0.000001")
    run("launch", "mended.yaml", *every, *INLINE)
    (folder / "data.csv").touch()
    assert run("resume", "mended", "--retry", "failed", *more).code == 0
    kept = [event.payload["step"] for event in events(folder, EventKind.RETRIED)]
    assert kept == ([-1, -1] if more else [2, 2])
    rows = [row for row in read.measurements("mended").to_pylist() if row["metric"] == "valid/score"]
    found = {(row["arm"], row["step"]): round(row["value"], 2) for row in rows if row["seed"] == 2}
    early = 1.02 if more else 0.02, 2.02 if more else 1.02
    steps = {
        (arm, step): value for arm, value in zip(("baseline", "plus"), early, strict=True) for step in (1, 2)
    }
    assert found == steps | {("baseline", 3): 1.02, ("plus", 3): 2.02}
    assert len(rows) == 18, "a measurement that was made again counts once"


FAULTS = {
    "out_of_memory": "raise MemoryError('no room for the batch')",
    "timed_out": "time.sleep(1e6)",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_kind_of_failure_can_be_retried_by_its_name(run, folder, kind):
    fault = f"""        if step == 2 and settings["x"] and trial.seed == 2 and not there:
            {FAULTS[kind]}
        found ="""
    (folder / "mended.py").write_text(CODE.replace("        found =", fault))
    healthy = ("baseline.fails_at=9", "resources.silent_minutes=0.05")
    assert run("launch", "mended.yaml", *healthy, *INLINE).code == 1
    failed = [row["trial_id"] for row in read.trials("mended").to_pylist() if row["outcome"] == kind]
    assert len(failed) == 1
    (folder / "data.csv").touch()
    (other,) = FAULTS.keys() - {kind}
    assert "nothing to retry" in run("resume", "mended", "--retry", other).out
    assert run("resume", "mended", "--retry", kind).code == 0
    assert {row["outcome"] for row in read.trials("mended").to_pylist()} == {"finished"}
    assert [trial_id for trial_id, count in starts(folder).items() if count == 2] == failed


def test_corrected_code_needs_no_further_option_where_only_failed_trials_ran_the_old(run, folder):
    (folder / "mended.py").write_text(CODE.replace("trial.seed == 2 and ", ""))
    result = run("launch", "mended.yaml", *INLINE)
    assert result.code == 1
    assert len(starts(folder)) < 6, "the sweep stops at an error that the first three trials of an arm share"
    assert "crashed with the same error: FileNotFoundError" in result.err
    assert json.loads(run("status", "mended", "--json").out)["failing"]
    assert run("resume", "mended").code == 1, "the error still stands"
    (folder / "mended.py").write_text(CODE.replace("trial.seed == 2 and ", "False and "))
    result = run("resume", "mended", "--retry", "failed")
    assert result.code == 0, result
    assert read.report("mended").left == 0


def test_a_sweep_goes_on_past_a_repeated_error_if_the_spec_says_so(run, folder):
    (folder / "mended.py").write_text(CODE.replace("trial.seed == 2 and ", ""))
    assert run("launch", "mended.yaml", "on_error=continue", *INLINE).code == 1
    assert {row["outcome"] for row in read.trials("mended").to_pylist()} == {"crashed"}
    assert len(starts(folder)) == 6


def test_a_stopped_sweep_takes_up_that_it_should_go_on(run, folder):
    (folder / "mended.py").write_text(CODE.replace("trial.seed == 2 and ", ""))
    run("launch", "mended.yaml", *INLINE)
    assert run("extend", "mended", "on_error=continue", *INLINE).code == 1
    assert len(starts(folder)) == 6


@pytest.mark.slow
def test_on_ray_with_mlflow_the_run_of_a_retried_trial_is_reopened(tmp_path):
    from tests.support.mlflow.mlflow_db import runs

    shell = Shell.at(tmp_path, SPEC, tracked=True)
    (shell.folder / "tiny.yaml").rename(shell.folder / "mended.yaml")
    (shell.folder / "mended.py").write_text(CODE)
    shown = shell.run("launch", "mended.yaml", "baseline.fails_at=3", "--driver", "ray")
    assert shown.code == 1, shown
    (shell.folder / "data.csv").touch()
    shown = shell.run("resume", "mended", "--retry", "failed")
    assert shown.code == 0, shown
    found = runs(shell.folder / "runs" / "mlflow.db", "mended")
    assert {each.status for each in found.values()} == {"FINISHED"}
    assert len([key for key in found if key.startswith("trial/")]) == 6
    shown = shell.run("verify", "mended")
    assert shown.code == 0, shown
