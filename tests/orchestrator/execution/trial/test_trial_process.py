"""Every trial of a session starts in the same process state, whatever earlier trials changed."""

import itertools
import signal

import pytest

from orchestrator.execution.inline import run_inline
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.execution.trial.trial_process import explain_death
from orchestrator.isolation.messages import ChildEnded
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from orchestrator.trials import DeathCause, OutcomeKind
from tests.support.processes.logs import MemoryLog, record
from tests.support.specs.plans import make_arm, make_plan

NUMBERS = itertools.count()
"""Modules have unique names, because this process keeps imported modules."""


@pytest.fixture
def launch_folder(tmp_path, monkeypatch):
    """Create the folder from which sweeps are launched."""
    folder = tmp_path / "launch"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run_trials(launch_folder, tmp_path):
    """Return a function that runs trials of one arm with the given training code."""

    def run_code(code, num_trials=3, cpus=1.0, **options):
        name = f"study_{next(NUMBERS)}"
        (launch_folder / f"{name}.py").write_text(code)
        plan = make_plan(
            [make_arm("arm")], trials_per_arm=num_trials, seeds=(), resources=Resources(retries=0)
        )
        log = MemoryLog()
        recorder = record(plan, log, root=tmp_path / "runs" / "study")
        folders = {"data_dir": tmp_path / "data", "launch_folder": launch_folder}
        run_inline(recorder, JobEncoder(f"{name}:train", 30.0, cpus, 0.0, **folders, **options))
        assert recorder.is_finished
        return log

    return run_code


def scores(log):
    return [event.payload["metrics"]["valid/score"] for event in log.of(EventKind.MEASURED)]


def trial_ends(log):
    return [(event.payload["kind"], event.payload["reason"]) for event in log.of(EventKind.ENDED)]


CHANGES = {
    "a global": ("SEEN = []", "len(SEEN)", "SEEN.append(1)"),
    "the environment": ("import os", "'CHANGED' in os.environ", "os.environ['CHANGED'] = '1'"),
    "the working directory": (
        "import os",
        "os.path.exists('here')",
        "open('here', 'w').close(); os.chdir('/')",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_the_process_affects_no_other_trial(run_trials, change):
    setup, changed, change_code = CHANGES[change]
    report = f"trial.report(1, {{'valid/score': float({changed})}})"
    code = f"{setup}\ndef train(settings, trial):\n    {report}\n    {change_code}\n"
    log = run_trials(code, num_trials=2)
    assert [kind for kind, _ in trial_ends(log)] == [OutcomeKind.FINISHED] * 2
    assert scores(log) == [0.0, 0.0]


def test_trial_that_reads_and_overwrites_a_file_of_the_launch_folder_crashes(run_trials, launch_folder):
    (launch_folder / "best.txt").write_text("0")
    code = """
import time

def train(settings, trial):
    trial.report(1, {"valid/score": 0.5})
    open("best.txt").read()
    open("best.txt", "w").write("1")
    trial.report(2, {"valid/score": 0.5})
"""
    for kind, reason in trial_ends(run_trials(code)):
        assert kind == OutcomeKind.CRASHED
        assert "best.txt" in reason
        assert "resources.working_folder: shared" in reason
    assert (launch_folder / "best.txt").read_text() == "0"


def test_files_that_match_keep_remain_after_the_trial(run_trials, launch_folder, tmp_path):
    (launch_folder / "launched.pt").write_text("0")
    (launch_folder / "deep").mkdir()
    (launch_folder / "deep" / "launched.csv").write_text("0")
    code = """
from pathlib import Path

def train(settings, trial):
    Path("weights.pt").write_text(str(trial.seed))
    Path("deep/curve.csv").write_text("1")
    (trial.folder / "inside.pt").write_text("2")
    Path("large.bin").write_text("3")
    trial.report(1, {"valid/score": 0.5})
"""
    log = run_trials(code, keep=("*.pt", "deep/*.csv"))
    root = tmp_path / "runs" / "study"
    for event in log.of(EventKind.ENDED):
        kept_folder = root / "kept" / event.trial_id
        names = {str(path.relative_to(kept_folder)) for path in kept_folder.rglob("*") if path.is_file()}
        assert names == {"weights.pt", "deep/curve.csv", "inside.pt"}, "only matching files must remain"
    assert not list((root / "scratch").glob("*/*")), "no other file must remain"


@pytest.mark.parametrize(("statement", "message"), [("_exit(7)", "exit code 7"), ("abort()", "SIGABRT")])
def test_death_of_a_process_ends_only_its_trial(run_trials, statement, message):
    log = run_trials(f"import os\ndef train(settings, trial):\n    os.{statement}\n", num_trials=2)
    assert [kind for kind, _ in trial_ends(log)] == [OutcomeKind.CRASHED] * 2
    assert all(message in reason for _, reason in trial_ends(log))


def test_trial_has_as_many_threads_as_cores(run_trials):
    code = """
import os
import torch

def train(settings, trial):
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    trial.report(1, {"valid/score": float(torch.get_num_threads())})
"""
    assert scores(run_trials(code, num_trials=1, cpus=3.0)) == [3.0]
    assert scores(run_trials(code, num_trials=1, cpus=0.5)) == [1.0]


@pytest.mark.parametrize(
    ("ended", "cause"),
    [
        (ChildEnded(1), DeathCause.TRIAL),
        (ChildEnded(-signal.SIGSEGV), DeathCause.TRIAL),
        (ChildEnded(-signal.SIGKILL), DeathCause.OUTSIDE),
        (ChildEnded(-signal.SIGTERM), DeathCause.OUTSIDE),
        (ChildEnded(-signal.SIGKILL, is_oom_kill=True), DeathCause.MEMORY),
    ],
)
def test_cause_of_death_depends_on_how_the_process_ended(ended, cause):
    assert explain_death(ended).cause is cause


PREEMPTED = """
import os, signal, sys
from pathlib import Path

def train(settings, trial):
    deaths = Path(os.environ["DEATHS"])
    count = len(deaths.read_text()) if deaths.exists() else 0
    deaths.write_text("x" * (count + 1))
    if count < 6:
        {death}
        raise RuntimeError("an error of a library")
    trial.report(1, {{"valid/score": float(count)}})
"""
"""A trial that a signal ends six times before its first report."""


@pytest.mark.parametrize(
    "death",
    [
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); os.kill(os.getpid(), signal.SIGTERM)",
        "signal.signal(signal.SIGTERM, print); os.kill(os.getpid(), signal.SIGTERM); return",
    ],
)
def test_preempted_trial_finishes_beyond_its_retries(run_trials, tmp_path, monkeypatch, death):
    monkeypatch.setenv("DEATHS", str(tmp_path / "deaths"))
    log = run_trials(PREEMPTED.format(death=death), num_trials=1)
    assert [kind for kind, _ in trial_ends(log)] == [OutcomeKind.STOPPED] * 6 + [OutcomeKind.FINISHED]
    assert scores(log) == [6.0]


def test_trial_asked_to_return_early_by_a_signal_continues_afterwards(run_trials, tmp_path, monkeypatch):
    monkeypatch.setenv("DEATHS", str(tmp_path / "deaths"))
    code = """
import os, signal
from pathlib import Path

def train(settings, trial):
    is_asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_end.append(True))
    for step in (1, 2, 3):
        trial.report(step, {"valid/score": step / 2})
        if step == 2 and not Path(os.environ["DEATHS"]).exists():
            Path(os.environ["DEATHS"]).touch()
            os.kill(os.getpid(), signal.SIGTERM)
        if is_asked_to_end:
            return
"""
    log = run_trials(code, num_trials=1)
    assert [kind for kind, _ in trial_ends(log)] == [OutcomeKind.STOPPED, OutcomeKind.FINISHED]
    assert scores(log) == [0.5, 1.0, 1.5]
