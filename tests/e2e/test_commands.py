"""The command line in a new process, as users run it; refusals run in this process."""

import json
import re
import shlex
import sqlite3
from collections import Counter

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json
from tests.support.processes.commands import TINY, Shell, answer, interrupt, tree, wait_for
from trainables.training import NONDETERMINISTIC_METRICS

RUNS, DATA = "my runs", """the "data" folder"""
PLACES = ("--runs", RUNS, "--data", DATA)
INLINE = ("--driver", "inline")
ENDLESS = ("baseline.train.steps=1000000", "baseline.train.report_every=1000000")
ONE_ARM_DIVERGES = "arms.too-fast={why: cannot learn, set: {train.ponder_weight: 0.02, train.lr: 1.0e+30}}"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return Shell.at(tmp_path_factory.mktemp("commands"), tracked=True, draws_figures=True)


@pytest.fixture(scope="module")
def launched(shell):
    """Result of the command that ran the sweep of `shell` to its end."""
    return sync_if_needed(shell.run("launch", "tiny.yaml", *INLINE, *PLACES), shell)


@pytest.fixture
def fresh_shell(tmp_path):
    return Shell.at(tmp_path, tracked=True)


@pytest.fixture
def untracked_shell(tmp_path):
    """A shell whose launches write no MLflow, for tests that do not read it."""
    return Shell.at(tmp_path)


def sweep_of(shell, name="tiny"):
    return SweepFolder(shell.folder / RUNS / name)


def planned_ids(folder):
    return {trial.trial_id for trial in from_json(folder.plan.read_text()).trials}


def events(folder):
    """Read the log of a sweep that may be running; empty before the ledger exists."""
    try:
        with Ledger.open(folder.ledger_url, folder.name) as ledger:
            return list(ledger.events())
    except StoreError:
        return []


def trial_events(folder):
    """Return kind, trial and payload of all events of trials."""
    kinds = {EventKind.PARAMS_ASSIGNED, EventKind.STARTED, EventKind.MEASURED, EventKind.ENDED}
    return [(event.kind, event.trial_id, event.payload) for event in events(folder) if event.kind in kinds]


def mlflow_runs(shell):
    """Return the status of each MLflow run."""
    with sqlite3.connect(shell.folder / RUNS / "mlflow.db") as connection:
        return dict(connection.execute("SELECT run_uuid, status FROM runs"))


def assert_plain(answer):
    """Check that the output fits a log file: no colours, no cursor movement, no traceback."""
    assert "\x1b" not in answer.out + answer.err
    assert "\r" not in answer.out + answer.err
    assert "Traceback" not in answer.out + answer.err


def sync_if_needed(answer, shell):
    """Sync runs that a slow MLflow has left behind, so that no later test sees them; return the result."""
    if "haltsweep sync" in answer.err:
        print(answer.err)  # shown if the test fails
        assert shell.run("sync", "tiny", "--runs", RUNS).code == 0
    return answer


def assert_finished(folder):
    """Check that every planned trial ended once and measured each step once."""
    num_ends = Counter(trial for kind, trial, payload in trial_events(folder) if kind is EventKind.ENDED
                    and payload["kind"] != "stopped")  # fmt: skip
    assert num_ends == Counter(planned_ids(folder))
    steps = Counter(
        (trial, payload["step"])
        for kind, trial, payload in trial_events(folder)
        if kind is EventKind.MEASURED
    )
    assert set(steps.values()) == {1}


def tree_without_journals(folder):
    """Return the digests of all files but journals of databases, which SQLite deletes on closing."""
    return {path: digest for path, digest in tree(folder).items() if not path.endswith(("-shm", "-wal"))}


@pytest.mark.slow
class TestFinishedSweep:
    def test_launch_writes_report_records_and_mlflow(self, launched, shell):
        assert launched.code == 0
        assert_plain(launched)
        for arm in ("baseline", "minus-gate"):
            assert re.search(rf"│ {arm} +│ 2 +│ 0\.\d\d\d ", launched.out)
        folder = sweep_of(shell)
        report = (folder.report / "report.md").read_text()
        assert "Does the gate matter?" in report
        assert set(pq.read_table(folder.records).column("trial_id").to_pylist()) == planned_ids(folder)
        assert Counter(mlflow_runs(shell).values()) == {"FINISHED": 1 + 2 + 8}  # sweep, arms, trials
        assert_finished(folder)

    def test_second_launch_is_refused(self, launched, shell):
        state_before = tree_without_journals(shell.folder)
        second_launch = shell.run("launch", "tiny.yaml", *INLINE, *PLACES)
        assert second_launch.code == 2
        assert tree_without_journals(shell.folder) == state_before
        (remedy,) = re.findall(r"`haltsweep (.*)`", second_launch.err)
        assert sync_if_needed(shell.run(*shlex.split(remedy), *INLINE), shell).code == 0

    def test_continued_launch_of_a_finished_sweep_runs_no_trial(self, launched, shell):
        state_before, runs = trial_events(sweep_of(shell)), mlflow_runs(shell)
        resume_result = shell.run("launch", "tiny.yaml", "--continue", *INLINE, *PLACES)
        assert sync_if_needed(resume_result, shell).code == 0, resume_result.err
        assert trial_events(sweep_of(shell)) == state_before
        assert mlflow_runs(shell) == runs

    def test_status_json_has_arms_and_trials(self, launched, shell):
        output = shell.run("status", "tiny", "--runs", RUNS, "--json")
        status = json.loads(output.out)
        assert (status["sweep"], status["state"]) == ("tiny", "finished")
        assert [(arm["arm"], arm["ended"], arm["planned"]) for arm in status["arms"]] == [
            ("baseline", 4, 4),
            ("minus-gate", 4, 4),
        ]
        assert {trial["trial_id"] for trial in status["trials"]} == planned_ids(sweep_of(shell))
        assert {trial["outcome"] for trial in status["trials"]} == {"finished"}
        assert {trial["step"] for trial in status["trials"]} == {4}

    def test_report_json_has_cells_and_floors(self, launched, shell):
        printed = shell.run("report", "tiny", "--runs", RUNS, "--json")
        assert printed.code == 0
        report = json.loads(printed.out)
        assert report["arms"] == ["baseline", "minus-gate"]
        assert "near-iid/accuracy" in report["floors"]
        assert all(set(cell["record_ids"]) <= planned_ids(sweep_of(shell)) for cell in report["cells"])
        assert all(cell["estimate"]["n"] == len(cell["record_ids"]) == 2 for cell in report["cells"])
        assert printed.out == (sweep_of(shell).report / "report.json").read_text()

    def test_sync_of_a_synced_sweep_writes_nothing(self, launched, shell):
        first = shell.run("sync", "tiny", "--runs", RUNS)
        assert first.code == 0
        # Print the leftovers of an earlier session, which are rare and no part of this test.
        print(first.out, (sweep_of(shell).root / "tracking.log").read_text())
        state_before = mlflow_runs(shell)
        second = shell.run("sync", "tiny", "--runs", RUNS)
        assert second.code == 0
        assert mlflow_runs(shell) == state_before


class TestPlanning:
    def test_dry_run_prints_the_plan_and_writes_nothing(self, untracked_shell):
        options = ("tiny.yaml", "baseline.train.steps=6", "--profile", "short")
        state_before = tree(untracked_shell.folder), tree(untracked_shell.home)
        plan = untracked_shell.run("plan", *options)
        dry_run = untracked_shell.run("launch", *options, "--dry-run", *PLACES)
        assert plan.code == dry_run.code == 0
        assert plan.out == dry_run.out
        assert_plain(plan)
        assert "minus-gate" in plan.out
        assert "train.steps 6" in plan.out
        assert (tree(untracked_shell.folder), tree(untracked_shell.home)) == state_before

    @pytest.mark.parametrize(
        ("verb", "options"), [("check", ()), ("plan", ()), ("launch", (*INLINE, *PLACES))]
    )
    def test_bad_spec_is_reported_with_its_line_and_writes_nothing(
        self, haltsweep, tmp_path, monkeypatch, verb, options
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "tiny.yaml").write_text(TINY.replace("gate: false", "gaet: false"))
        state_before = tree(tmp_path)
        output = haltsweep(verb, "tiny.yaml", *options)
        assert output.code == 2
        assert output.out == ""
        assert_plain(output)
        assert output.err.startswith("tiny.yaml:10: arms.minus-gate.set.model.gaet: ")
        assert "'gate'" in output.err
        assert tree(tmp_path) == state_before


@pytest.mark.slow
class TestFailures:
    def test_diverged_trial_is_reported_and_sets_the_exit_code(self, untracked_shell):
        """The sweep stores its ledger at another place."""
        storage = ("--storage", f"sqlite:///{untracked_shell.folder / 'team.db'}")
        options = ("--profile", "short", ONE_ARM_DIVERGES, *storage)
        result = untracked_shell.run("launch", "tiny.yaml", *options, *INLINE, *PLACES)
        assert result.code == 1, result.err
        assert_plain(result)
        assert "2 diverged, 4 finished" in result.out
        assert re.search(r"│ too-fast +│ 0 of 2 ", result.out)
        assert not sweep_of(untracked_shell).ledger.exists()
        output = untracked_shell.run("status", "tiny", "--runs", RUNS)
        assert re.search(r"too-fast confirm 0 \(\w+\): diverged: \S", output.out)


@pytest.mark.slow
class TestInterruptedSweep:
    def test_first_interrupt_writes_checkpoints_that_resume_uses(self, fresh_shell):
        folder = sweep_of(fresh_shell)
        long = ("baseline.train.steps=300", "baseline.train.report_every=20", "confirm.seeds=[5]")
        with fresh_shell.started(
            "launch", "tiny.yaml", "--profile", "short", *long, *INLINE, *PLACES
        ) as process:
            wait_for(
                lambda: sum(kind is EventKind.MEASURED for kind, *_ in trial_events(folder)) > 2, process
            )
            running = json.loads(fresh_shell.run("status", "tiny", "--runs", RUNS, "--json").out)
            interrupt(process)
            stop_result = answer(process)

        assert running["state"] == "running"
        assert [arm["running"] for arm in running["arms"]] in ([1, 0], [0, 1])
        assert stop_result.code == 130
        assert "haltsweep resume tiny --runs 'my runs'" in stop_result.err
        assert_plain(stop_result)
        (trial_id,) = [path.name for path in folder.checkpoint_folder.iterdir()]
        assert list(folder.checkpoint(trial_id).iterdir())
        output = fresh_shell.run("status", "tiny", "--runs", RUNS)
        (command_line,) = re.findall("haltsweep resume tiny --runs 'my runs'.*", output.out)
        command = shlex.split(command_line)
        resume_result = fresh_shell.run(*command[1:], *INLINE)
        assert resume_result.code == 0, resume_result.err
        assert "trials: 2 finished" in resume_result.out
        assert_finished(folder)
        assert Counter(mlflow_runs(fresh_shell).values()) == {"FINISHED": 1 + 2 + 2}

    def test_second_interrupt_stops_at_once(self, untracked_shell):
        """The trial would report only after a million steps, so no clean stop is possible."""
        folder = sweep_of(untracked_shell)
        endless = ("launch", "tiny.yaml", "--profile", "short", *ENDLESS, *INLINE, *PLACES)
        with untracked_shell.started(*endless) as process:
            wait_for(lambda: any(kind is EventKind.STARTED for kind, *_ in trial_events(folder)), process)
            interrupt(process)
            assert process.stderr.readline()
            interrupt(process)
            stop_result = answer(process)
        assert stop_result.code == 130
        assert_plain(stop_result)
        output = json.loads(untracked_shell.run("status", "tiny", "--runs", RUNS, "--json").out)
        assert output["state"] == "unfinished"


@pytest.mark.slow
def test_ray_driver_runs_the_same_trials(untracked_shell, launched, shell):
    """Ray runs trials with the same params and, on the CPU, the same metrics as the inline driver. A private
    Ray ignores the address of another one."""
    options = ("--driver", "ray", "--cpus", "1", *PLACES)
    result = untracked_shell.run("launch", "tiny.yaml", *options, RAY_ADDRESS="ray://127.0.0.1:1")
    assert result.code == 0, result.err
    assert_plain(result)
    assert "trials: 8 finished" in result.out
    assert_finished(sweep_of(untracked_shell))
    assert deterministic_results(untracked_shell) == deterministic_results(shell)


def deterministic_results(shell):
    """Return params and deterministic metrics of each trial."""
    output = json.loads(shell.run("status", "tiny", "--runs", RUNS, "--json").out)
    return {
        trial["trial_id"]: (
            trial["assignment"],
            {name: value for name, value in trial["metrics"].items() if name not in NONDETERMINISTIC_METRICS},
        )
        for trial in output["trials"]
    }
