"""The command line as people use it: the real command, in a process of its own but where it only refuses."""

import json
import os
import pty
import re
import shlex
import sqlite3
import struct
import subprocess
import termios
from collections import Counter
from fcntl import ioctl

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json
from tests.faults.other_code.test_foreign_names import assert_untouched, launch_among_foreign_names
from tests.support.processes.commands import (
    COMMAND,
    PATIENCE_S,
    TINY,
    Shell,
    answer,
    interrupt,
    tree,
    wait_for,
)
from tests.support.processes.temporary import short_folder
from trainables.training import NONDETERMINISTIC

RUNS, DATA = "my runs", """the "data" folder"""
PLACES = ("--runs", RUNS, "--data", DATA)
INLINE = ("--driver", "inline")
ENDLESS = ("baseline.train.steps=1000000", "baseline.train.report_every=1000000")
ONE_ARM_DIVERGES = "arms.too-fast={why: cannot learn, set: {train.ponder_weight: 0.02, train.lr: 1.0e+30}}"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return Shell.at(tmp_path_factory.mktemp("commands"), tracked=True, drawn=True)


@pytest.fixture(scope="module")
def launched(shell):
    """A sweep run to its end, before anything else happens to it."""
    return caught_up(shell.run("launch", "tiny.yaml", *INLINE, *PLACES), shell)


@pytest.fixture
def fresh(tmp_path):
    return Shell.at(tmp_path, tracked=True)


@pytest.fixture
def quick(tmp_path):
    """Where nobody looks at MLflow."""
    return Shell.at(tmp_path)


def sweep_of(shell, name="tiny"):
    return SweepFolder(shell.folder / RUNS / name)


def planned_ids(folder):
    return {trial.trial_id for trial in from_json(folder.plan.read_text()).trials}


def events(folder):
    """The log, of a sweep that may be running; none before it is there."""
    try:
        with Ledger.open(folder.ledger_url, folder.name) as ledger:
            return list(ledger.events())
    except StoreError:
        return []


def work(folder):
    """All that trials did."""
    kinds = {EventKind.ASKED, EventKind.STARTED, EventKind.MEASURED, EventKind.ENDED}
    return [(event.kind, event.trial_id, event.payload) for event in events(folder) if event.kind in kinds]


def mlflow_runs(shell):
    """Status by run."""
    with sqlite3.connect(shell.folder / RUNS / "mlflow.db") as connection:
        return dict(connection.execute("SELECT run_uuid, status FROM runs"))


def assert_plain(answer):
    """Fit for a log file: no colours, no cursor tricks, no stack of calls."""
    assert "\x1b" not in answer.out + answer.err
    assert "\r" not in answer.out + answer.err
    assert "Traceback" not in answer.out + answer.err


def caught_up(answer, shell):
    """An answer; what it says was left to `sync`, as after an outage, no later test finds."""
    if "catch up with: " in answer.err:
        print(answer.err)  # shown with whatever fails next
        assert shell.run("sync", "tiny", "--runs", RUNS).code == 0
    return answer


def assert_finished(folder):
    """Every planned trial ended once, no step was measured twice."""
    ended = Counter(trial for kind, trial, payload in work(folder) if kind is EventKind.ENDED
                    and payload["kind"] != "stopped")  # fmt: skip
    assert ended == Counter(planned_ids(folder))
    steps = Counter(
        (trial, payload["step"]) for kind, trial, payload in work(folder) if kind is EventKind.MEASURED
    )
    assert set(steps.values()) == {1}


@pytest.mark.slow
class TestLaunched:
    def test_ends_with_the_table_and_what_to_do_next(self, launched, shell):
        assert launched.code == 0
        assert_plain(launched)
        # On a slow machine it is told what takes its time.
        taking_time = ("waiting for MLflow", "planning: ")
        assert not [line for line in launched.err.splitlines() if not line.startswith(taking_time)]
        assert re.search(r"floor \(most common label\)[^\n]*0\.\d\d\d", launched.out)
        for arm in ("baseline", "minus-gate"):
            assert re.search(rf"│ {arm} +│ 2 +│ 0\.\d\d\d ", launched.out)
        assert "trials: 8 finished" in launched.out
        assert f"report:  {RUNS}/tiny/report/report.html" in launched.out
        assert "MLflow UI: haltsweep ui tiny --runs 'my runs'" in launched.out
        assert launched.out.splitlines()[-2].startswith("undecided: minus-gate in ")

    def test_leaves_report_records_and_mlflow(self, launched, shell):
        folder = sweep_of(shell)
        report = (folder.report / "report.md").read_text()
        assert "Does the gate matter?" in report
        assert set(pq.read_table(folder.records).column("trial_id").to_pylist()) == planned_ids(folder)
        assert Counter(mlflow_runs(shell).values()) == {"FINISHED": 1 + 2 + 8}  # sweep, arms, trials
        assert_finished(folder)

    def test_keeps_the_spec_as_launched(self, launched, shell):
        made = shell.run("plan", str(sweep_of(shell).spec.relative_to(shell.folder)), "--json")
        assert json.loads(made.out) == json.loads(sweep_of(shell).plan.read_text())

    def test_says_nothing_twice(self, launched):
        lines = re.findall(r"^\[\d+s\] (.*)$", launched.out, re.MULTILINE)
        # After the last trial it is told what is waited for.
        of_trials = [
            line for line in lines if not line.startswith(("ending Ray", "writing the report", "trials have"))
        ]
        assert of_trials[-1] == "8/8 ended, 0 running, 0 pruned"
        assert lines[: len(of_trials)] == of_trials
        assert len(of_trials) == len(set(of_trials))

    def test_is_refused_a_second_time(self, launched, shell):
        before = tree(shell.folder)
        again = shell.run("launch", "tiny.yaml", *INLINE, *PLACES)
        assert again.code == 2
        assert tree(shell.folder) == before
        (remedy,) = re.findall(r"`haltsweep (.*)`", again.err)
        assert caught_up(shell.run(*shlex.split(remedy), *INLINE), shell).code == 0

    @pytest.mark.parametrize("how", [("resume", "tiny"), ("launch", "tiny.yaml", "--continue")])
    def test_has_nothing_left_to_resume(self, launched, shell, how):
        before, runs = work(sweep_of(shell)), mlflow_runs(shell)
        again = shell.run(*how, *INLINE, *(PLACES if how[0] == "launch" else PLACES[:2]))
        assert caught_up(again, shell).code == 0, again.err
        assert "trials: 8 finished" in again.out
        assert work(sweep_of(shell)) == before
        assert mlflow_runs(shell) == runs

    def test_is_not_continued_by_another_spec(self, launched, shell):
        other = shell.run("launch", "tiny.yaml", "search.seed=1", "--continue", *INLINE, *PLACES)
        assert other.code == 2
        assert "launched from another spec: choose another name" in other.err

    def test_status(self, launched, shell):
        shown = shell.run("status", "tiny", HALTSWEEP_RUNS=RUNS)
        assert shown.code == 0
        assert_plain(shown)
        assert "tiny: finished; 8/8 ended, 0 running, 0 pruned" in shown.out
        assert re.search(r"│ baseline +│ +4/4 │", shown.out)
        assert "minus-gate: undecided: fewer than 3 seeds (near-iid/accuracy" in shown.out

    def test_status_for_scripts(self, launched, shell):
        shown = shell.run("status", "tiny", "--runs", RUNS, "--json")
        found = json.loads(shown.out)
        assert (found["sweep"], found["state"]) == ("tiny", "finished")
        assert [(arm["arm"], arm["ended"], arm["planned"]) for arm in found["arms"]] == [
            ("baseline", 4, 4),
            ("minus-gate", 4, 4),
        ]
        assert {trial["trial_id"] for trial in found["trials"]} == planned_ids(sweep_of(shell))
        assert {trial["outcome"] for trial in found["trials"]} == {"finished"}
        assert {trial["step"] for trial in found["trials"]} == {4}

    def test_status_of_trials_one_by_one(self, launched, shell):
        shown = shell.run("status", f"{RUNS}/tiny", "--trials")
        for trial_id in planned_ids(sweep_of(shell)):
            assert re.search(rf"│ {trial_id} │ (baseline|minus-gate) +│ (search|confirm) ", shown.out)

    def test_report_for_scripts(self, launched, shell):
        made = shell.run("report", "tiny", "--runs", RUNS, "--json")
        assert made.code == 0
        found = json.loads(made.out)
        assert found["arms"] == ["baseline", "minus-gate"]
        assert "near-iid/accuracy" in found["floors"]
        assert all(set(cell["record_ids"]) <= planned_ids(sweep_of(shell)) for cell in found["cells"])
        assert all(cell["estimate"]["n"] == len(cell["record_ids"]) == 2 for cell in found["cells"])
        assert made.out == (sweep_of(shell).report / "report.json").read_text()

    def test_report_for_people(self, launched, shell):
        made = shell.run("report", "tiny", "--runs", RUNS)
        assert made.code == 0
        assert_plain(made)
        assert "minus-gate - baseline" in made.out
        assert f"written to {RUNS}/tiny/report" in made.out

    def test_sync_writes_nothing_when_all_is_there(self, launched, shell):
        first = shell.run("sync", "tiny", "--runs", RUNS)
        assert first.code == 0
        # What a session that ended before left to write is rare, and not what this is about.
        print(first.out, (sweep_of(shell).root / "tracking.log").read_text())
        before = mlflow_runs(shell)
        again = shell.run("sync", "tiny", "--runs", RUNS)
        assert (again.code, again.out) == (0, "tiny: all was up to date\n")
        assert mlflow_runs(shell) == before

    def test_sync_rebuilds_what_was_lost(self, launched, shell):
        other = shell.folder / "other.db"
        uri = ("--tracking", f"sqlite:///{other}")
        first = shell.run("sync", "tiny", "--runs", RUNS, *uri)
        assert re.match(r"tiny: 11 runs, .* written\n$", first.out)
        second = shell.run("sync", "tiny", "--runs", RUNS, *uri)
        assert second.out == "tiny: all was up to date\n"

    def test_unknown_names_get_the_nearest(self, launched, shell):
        for verb in ("status", "resume", "report", "sync", "ui"):
            shown = shell.run(verb, "tinny", "--runs", RUNS)
            assert shown.code == 2
            assert shown.err == f"no sweep named 'tinny' in {RUNS}. Did you mean 'tiny'? Known: tiny\n"


class TestBeforeASweep:
    def test_check(self, shell):
        shown = shell.run("check", "tiny.yaml")
        assert (shown.code, shown.out, shown.err) == (0, "tiny.yaml: ok (and with short)\n", "")

    def test_dry_run_is_the_plan_and_writes_nothing(self, quick):
        options = ("tiny.yaml", "baseline.train.steps=6", "--profile", "short")
        before = tree(quick.folder), tree(quick.home)
        plan = quick.run("plan", *options)
        dry_run = quick.run("launch", *options, "--dry-run", *PLACES)
        assert plan.code == dry_run.code == 0
        assert plan.out == dry_run.out
        assert_plain(plan)
        assert "minus-gate" in plan.out
        assert "train.steps 6" in plan.out
        assert (tree(quick.folder), tree(quick.home)) == before

    def test_plan_for_scripts_is_the_same_every_time(self, haltsweep, tmp_path):
        (tmp_path / "tiny.yaml").write_text(TINY)
        options = ("tiny.yaml", "--profile", "short", "confirm.seeds=[5, 6, 7]", "--json")
        first = haltsweep("plan", *options)
        assert first.out == haltsweep("plan", *options).out
        found = json.loads(first.out)
        assert found["search"] is None
        assert found["confirm"]["seeds"] == [5, 6, 7]
        assert len(found["trials"]) == len({trial["trial_id"] for trial in found["trials"]}) == 6

    @pytest.mark.parametrize(
        ("verb", "options"),
        [("check", ()), ("plan", ()), ("launch", (*INLINE, *PLACES)), ("launch", ("--dry-run",))],
    )
    def test_a_bad_spec_is_told_with_its_line_and_leaves_no_trace(
        self, haltsweep, tmp_path, monkeypatch, verb, options
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "tiny.yaml").write_text(TINY.replace("gate: false", "gaet: false"))
        before = tree(tmp_path)
        shown = haltsweep(verb, "tiny.yaml", *options)
        assert shown.code == 2
        assert shown.out == ""
        assert_plain(shown)
        assert shown.err.startswith("tiny.yaml:10: arms.minus-gate.set.model.gaet: ")
        assert "Did you mean" in shown.err
        assert tree(tmp_path) == before

    def test_bad_options_are_told_like_bad_specs(self, haltsweep, tmp_path):
        (tmp_path / "tiny.yaml").write_text(TINY)
        shown = haltsweep("launch", "tiny.yaml", "--gpus", "-1", *INLINE, *PLACES)
        assert shown.code == 2
        assert "resources.gpus" in shown.err
        assert not (tmp_path / RUNS).exists()


@pytest.mark.slow
class TestFailures:
    def test_a_trial_that_diverges_costs_the_exit_code_and_is_explained(self, quick):
        """Beside it: resources from the command line, and a ledger that is found where it was put."""
        storage = ("--storage", f"sqlite:///{quick.folder / 'team.db'}")
        options = ("--profile", "short", ONE_ARM_DIVERGES, "--cpus", "0.5", "--gpus", "0", *storage)
        done = quick.run("launch", "tiny.yaml", *options, *INLINE, *PLACES)
        assert done.code == 1, done.err
        assert_plain(done)
        assert "trials: 2 diverged, 4 finished" in done.out
        assert re.search(r"│ too-fast +│ 0 of 2 finished │", done.out)
        plan = from_json(sweep_of(quick).plan.read_text())
        assert (plan.resources.cpus, plan.resources.gpus) == (0.5, 0.0)
        assert not sweep_of(quick).ledger.exists()
        shown = quick.run("status", "tiny", "--runs", RUNS)
        assert "tiny: finished; 6/6 ended (2 of them failed), 0 running, 0 pruned" in shown.out
        assert re.search(r"failed: too-fast confirm 0 \(\w+\): diverged: \S.* finite", shown.out)

    def test_an_mlflow_that_is_away_costs_a_line(self, fresh):
        away = ("--tracking", "http://127.0.0.1:9")
        done = fresh.run("launch", "tiny.yaml", "--profile", "short", *INLINE, *PLACES, *away)
        assert done.code == 0, done.err
        assert_plain(done)
        assert "trials: 4 finished" in done.out
        assert "haltsweep sync tiny --runs 'my runs'" in done.err
        assert_finished(sweep_of(fresh))
        assert fresh.run("sync", "tiny", "--runs", RUNS).code == 1  # where it was launched to is away still
        caught_up = fresh.run("sync", "tiny", "--runs", RUNS, "--tracking", f"sqlite:///{RUNS}/mlflow.db")
        assert caught_up.code == 0, caught_up.err
        assert Counter(mlflow_runs(fresh).values()) == {"FINISHED": 1 + 2 + 4}


@pytest.mark.slow
class TestInterrupted:
    def test_once_saves_the_running_trials_and_resume_ends_them(self, fresh):
        folder = sweep_of(fresh)
        long = ("baseline.train.steps=300", "baseline.train.report_every=20", "confirm.seeds=[5]")
        with fresh.started("launch", "tiny.yaml", "--profile", "short", *long, *INLINE, *PLACES) as process:
            wait_for(lambda: sum(kind is EventKind.MEASURED for kind, *_ in work(folder)) > 2, process)
            running = json.loads(fresh.run("status", "tiny", "--runs", RUNS, "--json").out)
            interrupt(process)
            stopped = answer(process)

        assert running["state"] == "running"
        assert [arm["running"] for arm in running["arms"]] in ([1, 0], [0, 1])
        assert stopped.code == 130
        assert (
            "stopping: running trials are saved at their next report; Ctrl-C again stops at once"
            in stopped.err
        )
        assert "continue with: haltsweep resume tiny --runs 'my runs'" in stopped.err
        assert_plain(stopped)
        (trial_id,) = [one.name for one in folder.checkpoints.iterdir()]
        assert list(folder.checkpoint(trial_id).iterdir())
        shown = fresh.run("status", "tiny", "--runs", RUNS)
        assert "tiny: unfinished; 0/2 ended, 0 running, 0 pruned" in shown.out
        assert "continue with: haltsweep resume tiny --runs 'my runs'" in shown.out

        command = shlex.split(shown.out.partition("continue with: ")[2].splitlines()[0])
        resumed = fresh.run(*command[1:], *INLINE)
        assert resumed.code == 0, resumed.err
        assert "trials: 2 finished" in resumed.out
        assert_finished(folder)
        assert Counter(mlflow_runs(fresh).values()) == {"FINISHED": 1 + 2 + 2}

    def test_twice_stops_at_once(self, quick):
        """The trial reports after a million steps: no clean stop could come of it."""
        folder = sweep_of(quick)
        endless = ("launch", "tiny.yaml", "--profile", "short", *ENDLESS, *INLINE, *PLACES)
        with quick.started(*endless) as process:
            wait_for(lambda: any(kind is EventKind.STARTED for kind, *_ in work(folder)), process)
            interrupt(process)
            assert process.stderr is not None
            assert "stopping" in process.stderr.readline()
            interrupt(process)
            stopped = answer(process)
        assert stopped.code == 130
        assert_plain(stopped)
        shown = json.loads(quick.run("status", "tiny", "--runs", RUNS, "--json").out)
        assert shown["state"] == "unfinished"


@pytest.mark.slow
def test_a_terminal_gets_a_live_view(quick):
    """Colours and a table that is drawn again and again, then the same ending as in a log."""
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [COMMAND, "launch", "tiny.yaml", "--profile", "short", *INLINE, *PLACES]
    process = subprocess.Popen(
        command,
        cwd=quick.folder,
        env={**quick.environment, "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(controller, 65536):
            shown += piece
    except OSError:  # Linux: the other end is closed
        pass
    finally:
        os.close(controller)
    assert process.wait(PATIENCE_S) == 0
    text = shown.decode()
    live, _, ending = text.rpartition("paired by seed")
    assert "\x1b[" in live
    assert "Ctrl-C stops cleanly" in live
    assert live.count("running") > 1
    assert "trials: 4 finished" in ending


@pytest.mark.slow
def test_ray_runs_the_same_sweep(quick, launched, shell):
    """The other driver: the same trials, assignments and, on the CPU, the same figures.

    What is not ours lies where Ray and launches keep their own and clear away what killed ones left.
    """
    with short_folder() as temporary:  # for the paths of Ray's sockets
        given = ("--cpus", "1", *PLACES)
        done, left = launch_among_foreign_names(quick, quick.folder / RUNS, temporary, *given)
        assert_untouched(*left)
    assert_plain(done)
    assert "trials: 8 finished" in done.out
    assert_finished(sweep_of(quick))
    assert figures(quick) == figures(shell)


def figures(shell):
    """By trial: assignment and all metrics that are the same whenever it runs."""
    shown = json.loads(shell.run("status", "tiny", "--runs", RUNS, "--json").out)
    return {
        trial["trial_id"]: (
            trial["assignment"],
            {name: value for name, value in trial["metrics"].items() if name not in NONDETERMINISTIC},
        )
        for trial in shown["trials"]
    }
