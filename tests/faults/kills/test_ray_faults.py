"""Ray's workers and their launcher are killed; a later session continues as if nothing had happened."""

import secrets
import signal
from collections import Counter
from contextlib import contextmanager, suppress

import psutil
import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from tests.faults.kills.chaos import check_log, go
from tests.faults.kills.ray_launcher import MLFLOW, STEPS, place
from tests.faults.kills.test_stopped_from_elsewhere import haltsweep
from tests.support.mlflow.mlflow_db import runs
from tests.support.processes.forks import forks, run_module
from tests.support.processes.process_lookup import (
    AGENTS,
    WAIT_S,
    WORKERS,
    descendants,
    end,
    wait_until,
    with_prefix,
)

pytestmark = pytest.mark.slow
ASKED = "the sweep was asked to stop"
"""Why a trial has stopped that was saved before."""


@contextmanager
def launcher(root, *arguments):
    """A session that is surely over afterwards, with everything it started."""
    process = run_module(
        "tests.faults.kills.ray_launcher", root, *arguments, output=root / "output.txt", session=True
    )
    try:
        yield process
    finally:
        end([process, *descendants(process)])


@contextmanager
def other_cluster(root, monkeypatch):
    """A cluster that is not the sweep's own, protected by a token: its process and its address."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    address = root / "address"
    with launcher(root, "-", address) as cluster:
        wait_until(lambda: address.exists() and address.read_text(), "the cluster is up")
        yield cluster, address.read_text()


@contextmanager
def whole_family(process):
    """What it started, but for two agents of Ray's: they hold nothing, and end after a minute."""
    family = descendants(process)
    agents = with_prefix(family, *AGENTS)
    try:
        yield [each for each in family if each not in agents]
    finally:
        end(agents)


def events_of(root):
    with suppress(StoreError):
        return place(root).events()
    return []


def measured(root):
    return sum(each.kind is EventKind.MEASURED for each in events_of(root))


def workers(process):
    """Ray's workers that run a trial."""
    return with_prefix(descendants(process), WORKERS)


def under_way(root, process):
    """Steps have been measured that were not there before, and there are workers below `process`."""
    before = measured(root)
    wait_until(lambda: measured(root) >= before + 5 and workers(process), "trials are under way")


def steps_repeated(root):
    done = place(root).steps_done()
    return {line: times - 1 for line, times in done.items() if times > 1}


def check_mlflow(root):
    """One run a trial, every step once, none left open."""
    seen = {key: run for key, run in runs(root / MLFLOW, "synthetic").items() if key.startswith("trial/")}
    assert sorted(key.split("/")[2] for key in seen) == sorted(
        each.trial_id for each in place(root).plan.trials
    )
    assert {run.status for run in seen.values()} == {"FINISHED"}
    for run in seen.values():
        steps = Counter(step for metric, step, *_ in run.points if metric == "valid/score")
        whole = range(STEPS, STEPS + 1) if run.tags["haltsweep.phase"] == "posthoc" else range(1, STEPS + 1)
        assert steps == Counter(whole)


def finish(root):
    """What is left is done without Ray, which has been seen to start again by then."""
    process = forks.Process(target=go, args=(place(root),))
    process.start()
    process.join(WAIT_S)
    assert process.exitcode == 0


def test_stops_and_kills_of_launcher_and_workers_lose_and_double_nothing(tmp_path):
    (tmp_path / MLFLOW).touch()
    stopped = drain(tmp_path)
    with launcher(tmp_path) as process:
        seen = len(events_of(tmp_path))
        wait_until(lambda: stopped <= measured_since(tmp_path, seen), "what was stopped goes on")
        assert not steps_repeated(tmp_path), "what was drained is not done again"
        with whole_family(process) as family:
            process.kill()
            _, alive = psutil.wait_procs(family, timeout=WAIT_S)
            assert not alive, "whatever it started must end with the launcher"
    with launcher(tmp_path) as process:
        for pick in (min, max):
            under_way(tmp_path, process)
            pick(workers(process), key=lambda each: each.pid).kill()
        under_way(tmp_path, process)
        interrupt_twice(process)
    assert events_of(tmp_path)[-1].kind is EventKind.CLOSED
    finish(tmp_path)

    events = events_of(tmp_path)
    check_log(events, place(tmp_path).plan)
    ends = [each.payload for each in events if each.kind is EventKind.ENDED]
    assert all(each["kind"] in {"finished", "stopped"} for each in ends)
    stopped = [each for each in ends if each["kind"] == "stopped"]
    killed = [each for each in stopped if each.get("outside")]
    assert 1 <= len(killed) <= 2
    assert {each["reason"] for each in stopped if each not in killed} <= {ASKED}
    # Two trials run at a time, and what a worker had not yet sent when it died is at most 50 ms and a step.
    assert sum(steps_repeated(tmp_path).values()) <= (2 * 2 + 2) * 3
    check_mlflow(tmp_path)


def drain(root):
    """`haltsweep stop`: running trials are saved and stopped. Their names."""
    with launcher(root) as process:
        wait_until(lambda: measured(root) >= 25, "trials are under way")
        shown = haltsweep("stop", "synthetic", "--runs", root / "runs")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert process.wait(WAIT_S) == 0
    events = events_of(root)
    stopped = [each for each in events if each.kind is EventKind.ENDED and each.payload["kind"] == "stopped"]
    assert 1 <= len(stopped) <= 2
    assert {each.payload["reason"] for each in stopped} == {ASKED}
    assert events[-1].payload == {"reason": "interrupted"}
    saved = {each.trial_id for each in events if each.kind is EventKind.CHECKPOINTED}
    names = {each.trial_id for each in stopped}
    assert names <= saved
    return names


def measured_since(root, seen):
    """Trials of which something was measured after the first `seen` events."""
    return {each.trial_id for each in events_of(root)[seen:] if each.kind is EventKind.MEASURED}


def interrupt_twice(process):
    """The second interrupt ends it at once, with everything that it started."""
    with whole_family(process) as family:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
        _, alive = psutil.wait_procs(family, timeout=WAIT_S)
        assert not alive
