"""`haltsweep stop` in one process, the session in another: it drains, and resuming repeats nothing.

On Ray too: see tests/faults/kills/test_ray_faults.py.
"""

import os
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import Place, check_log
from tests.orchestrator.ledger.conftest import postgres_server  # noqa: F401 - a fixture
from tests.support.processes.commands import COMMAND, PATIENCE_S
from tests.support.processes.forks import forks
from tests.support.processes.process_lookup import wait_until
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.workloads import Synthetic

WORKLOAD = f"{__name__}:Slow"


class Slow(Synthetic):
    """Surely not at its end when it is asked to stop; fast once nobody wants it slow any more."""

    def advance(self):
        if (self._job.data_dir / "slow").exists():
            time.sleep(0.3)
        return super().advance()


def sweep(**train):
    arms = [make_arm("one", tally=True, **{"steps": 500, **train})]
    return make_plan(arms, trials_per_arm=2, seeds=(), resources=Resources(checkpoint_seconds=60.0))


def haltsweep(*arguments):
    command = [COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def _session(place, storage):
    setup = Setup(place.data, WORKLOAD, storage=storage)
    if place.folder.plan.exists():
        resume_sweep(place.folder, driver="inline")
    else:
        place.data.mkdir(parents=True)
        (place.data / "slow").touch()
        run_sweep(place.plan, place.folder, setup, "", driver="inline")


@contextmanager
def session(place, storage=None):
    """A session under way in another process."""
    process = forks.Process(target=_session, args=(place, storage))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def log_of(place, storage=None):
    try:
        with Ledger.open(storage or place.folder.ledger_url, place.plan.name) as ledger:
            return list(ledger.events())
    except StoreError:
        return []


def under_way(place, storage=None, at_least=2):
    """Steps have been measured that were not there before."""
    before = sum(event.kind is EventKind.MEASURED for event in log_of(place, storage))
    wait_until(
        lambda: (
            sum(event.kind is EventKind.MEASURED for event in log_of(place, storage)) >= before + at_least
        ),
        "trials are under way",
    )


def assert_drained(events):
    """Running trials were saved, then the sweep was let go of."""
    stopped = [each for each in events if each.kind is EventKind.ENDED and each.payload["kind"] == "stopped"]
    assert {each.payload["reason"] for each in stopped} == {"the sweep was asked to stop"}
    assert events[-1].payload == {"reason": "interrupted"}
    saved = {each.trial_id for each in events if each.kind is EventKind.CHECKPOINTED}
    assert {each.trial_id for each in stopped} <= saved


@pytest.mark.slow
def test_a_session_drains_and_the_next_one_is_not_stopped(tmp_path):
    place = Place(tmp_path, sweep())
    with session(place) as process:
        under_way(place)
        shown = haltsweep("stop", "synthetic", "--runs", tmp_path / "runs")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert f"process {process.pid} on " in shown.stdout
        assert "synthetic: stopped; continue with: haltsweep resume synthetic --runs " in shown.stdout
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    assert_drained(log_of(place))
    (place.data / "slow").unlink()
    with session(place) as process:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    check_log(log_of(place), place.plan)
    assert set(place.steps_done().values()) == {1}


@pytest.mark.slow
def test_a_trial_that_never_reports_is_given_up_only_if_asked_to(tmp_path):
    place = Place(tmp_path, sweep(fault="hang", fault_at=3, steps=4))
    with session(place) as process:
        under_way(place)
        runs = ("--runs", tmp_path / "runs")
        shown = haltsweep("stop", "synthetic", *runs, "--timeout", "3")
        assert shown.returncode == 1
        assert "--now" in shown.stderr
        assert process.is_alive()
        shown = haltsweep("stop", "synthetic", *runs, "--now")
        assert (shown.returncode, shown.stderr) == (0, "")
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    assert log_of(place)[-1].payload == {"reason": "interrupted"}


@pytest.mark.slow
def test_a_killed_session_is_nobody(tmp_path):
    place = Place(tmp_path, sweep())
    with session(place) as process:
        under_way(place)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    shown = haltsweep("stop", "synthetic", "--runs", tmp_path / "runs")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "no process runs it" in shown.stdout


@pytest.mark.slow
def test_through_postgresql_without_the_folder(tmp_path, request):
    with postgres_url(request) as url:
        place = Place(tmp_path, sweep())
        with session(place, url) as process:
            under_way(place, url)
            shown = haltsweep("stop", "synthetic", "--runs", tmp_path / "none", "--storage", url)
            assert (shown.returncode, shown.stderr) == (0, "")
            process.join(PATIENCE_S)
            assert process.exitcode == 0
        assert_drained(log_of(place, url))
