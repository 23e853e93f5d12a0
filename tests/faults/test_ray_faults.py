"""Ray's workers and their launcher are killed; a later session continues as if nothing had happened."""

import random
import secrets
import signal
from collections import Counter
from contextlib import contextmanager, suppress

import psutil
import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger.events import EventKind
from orchestrator.trials import OutcomeKind
from tests.faults.chaos import check_log
from tests.faults.ray_launcher import MLFLOW, STEPS, place
from tests.support.forks import module
from tests.support.mlflow_db import runs
from tests.support.processes import AGENTS, WAIT_S, WORKERS, end, family_of, named, wait_until

pytestmark = pytest.mark.slow


@contextmanager
def launcher(root, *arguments):
    """A session that is surely over afterwards, with everything it started."""
    process = module("tests.faults.ray_launcher", root, *arguments, output=root / "output.txt", session=True)
    try:
        yield process
    finally:
        end([process, *family_of(process)])


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
    family = family_of(process)
    agents = named(family, *AGENTS)
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
    return named(family_of(process), WORKERS)


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


def test_launcher_and_workers_are_killed_and_nothing_is_lost_or_doubled(tmp_path):
    (tmp_path / MLFLOW).touch()
    stream = random.Random(0)
    for _ in range(2):
        before = measured(tmp_path)
        with launcher(tmp_path) as process:
            wanted = before + stream.randint(5, 40)
            wait_until(lambda: measured(tmp_path) >= wanted, "trials are under way")  # noqa: B023
            with whole_family(process) as family:
                process.kill()
                _, alive = psutil.wait_procs(family, timeout=WAIT_S)
                assert not alive, "whatever it started must end with the launcher"

    with launcher(tmp_path) as process:
        for _ in range(4):
            before = measured(tmp_path)
            wait_until(lambda: measured(tmp_path) >= before + 5 and workers(process), "they go on")  # noqa: B023
            stream.choice(workers(process)).kill()
        assert process.wait(WAIT_S) == 0

    events = events_of(tmp_path)
    check_log(events, place(tmp_path).plan)
    ends = [each.payload for each in events if each.kind is EventKind.ENDED]
    assert all(each["kind"] in {"finished", "stopped"} for each in ends)
    # A trial counts the death of a launcher too where it had measured nothing since it was started.
    deaths = Counter(each["reason"].partition(", time")[0] for each in ends if each["kind"] == "stopped")
    assert deaths.keys() <= {"worker died", "launching process died"}
    assert 1 <= deaths["worker died"] <= 4
    assert deaths["launching process died"] <= 2 * 2, "two launchers, each with two trials at a time"
    # Two trials run at a time, and what a worker had not yet sent when it died is at most 50 ms and a step.
    assert sum(steps_repeated(tmp_path).values()) <= (2 * 2 + 4) * 3
    check_mlflow(tmp_path)


def test_the_first_interrupt_drains_and_resuming_repeats_nothing(tmp_path):
    (tmp_path / MLFLOW).touch()
    with launcher(tmp_path) as process:
        wait_until(lambda: measured(tmp_path) >= 25, "trials are under way")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    events = events_of(tmp_path)
    stopped = [each for each in events if each.kind is EventKind.ENDED and each.payload["kind"] == "stopped"]
    assert 1 <= len(stopped) <= 2
    assert {each.payload["reason"] for each in stopped} == {"the sweep was asked to stop"}
    assert events[-1].payload == {"reason": "interrupted"}
    saved = {each.trial_id for each in events if each.kind is EventKind.CHECKPOINTED}
    assert {each.trial_id for each in stopped} <= saved
    with launcher(tmp_path) as process:
        assert process.wait(WAIT_S) == 0
    check_log(events_of(tmp_path), place(tmp_path).plan)
    assert not steps_repeated(tmp_path)
    check_mlflow(tmp_path)


def test_the_second_interrupt_ends_at_once(tmp_path):
    with launcher(tmp_path) as process:
        wait_until(lambda: measured(tmp_path) >= 5, "trials are under way")
        with whole_family(process) as family:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
            _, alive = psutil.wait_procs(family, timeout=WAIT_S)
            assert not alive
    assert events_of(tmp_path)[-1].kind is EventKind.CLOSED


def test_on_an_existing_cluster_workers_end_with_the_launcher(tmp_path, monkeypatch):
    with other_cluster(tmp_path, monkeypatch) as (cluster, address):
        with launcher(tmp_path, address) as process:
            wait_until(lambda: measured(tmp_path) >= 10, "trials are under way")
            assert workers(cluster)
            process.kill()
            process.wait(WAIT_S)
            wait_until(lambda: not workers(cluster), "orphans have ended")
        assert cluster.is_running(), "the cluster is not ours to end"
        with launcher(tmp_path, address) as process:
            assert process.wait(WAIT_S) == 0
        assert cluster.is_running()
    check_log(events_of(tmp_path), place(tmp_path).plan)
    assert {OutcomeKind.FINISHED} == {
        OutcomeKind(each.payload["kind"])
        for each in events_of(tmp_path)
        if each.kind is EventKind.ENDED and OutcomeKind(each.payload["kind"]).final
    }
