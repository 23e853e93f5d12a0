"""`haltsweep stop` in another process drains a session, and a resumed sweep repeats nothing."""

import subprocess
import time
from contextlib import contextmanager

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.inline import STOP_REASON
from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.support.processes.commands import COMMAND, PATIENCE_S
from tests.support.processes.forks import forks
from tests.support.processes.process_lookup import wait_until
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import Synthetic

WORKLOAD = f"{__name__}:SlowWorkload"


class SlowWorkload(Synthetic):
    """A workload that is slow until the file `slow` is deleted."""

    def advance(self):
        if (self._job.data_dir / "slow").exists():
            time.sleep(0.3)
        return super().advance()


def make_sweep_plan(**train):
    arms = [make_arm("one", tally=True, **{"steps": 500, **train})]
    return make_plan(arms, trials_per_arm=2, seeds=(), resources=Resources(checkpoint_seconds=60.0))


def run_haltsweep(*arguments):
    command = [COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def _session(sweep):
    if sweep.folder.plan.exists():
        resume_sweep(sweep.folder, driver="inline")
    else:
        sweep.data.mkdir(parents=True)
        (sweep.data / "slow").touch()
        run_sweep(sweep.plan, sweep.folder, Setup(sweep.data, WORKLOAD), "", driver="inline")


@contextmanager
def session(sweep):
    """Run a session in another process."""
    process = forks.Process(target=_session, args=(sweep,))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def read_events(sweep):
    try:
        return sweep.events()
    except StoreError:
        return []


def wait_for_progress(sweep):
    """Wait until two steps are measured."""
    wait_until(
        lambda: sum(event.kind is EventKind.MEASURED for event in read_events(sweep)) >= 2,
        "trials are under way",
    )


@pytest.mark.slow
def test_stop_drains_a_session_and_the_next_session_continues(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan())
    with session(sweep) as process:
        wait_for_progress(sweep)
        result = run_haltsweep("stop", "synthetic", "--runs", tmp_path / "runs")
        assert (result.returncode, result.stderr) == (0, "")
        assert f"process {process.pid} on " in result.stdout
        assert "haltsweep resume synthetic --runs " in result.stdout
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    events = read_events(sweep)
    end_events = [event for event in events if event.kind is EventKind.ENDED]
    assert {event.payload["reason"] for event in end_events} == {STOP_REASON}
    assert events[-1].payload == {"reason": "interrupted"}
    checkpointed = {event.trial_id for event in events if event.kind is EventKind.CHECKPOINTED}
    assert {event.trial_id for event in end_events} <= checkpointed
    (sweep.data / "slow").unlink()
    with session(sweep) as process:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    check_log(read_events(sweep), sweep.plan)
    assert set(sweep.count_steps().values()) == {1}


@pytest.mark.slow
def test_only_now_option_stops_a_trial_that_never_reports(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan(fault="hang", fault_at=3, steps=4))
    with session(sweep) as process:
        wait_for_progress(sweep)
        runs = ("--runs", tmp_path / "runs")
        result = run_haltsweep("stop", "synthetic", *runs, "--timeout", "3")
        assert result.returncode == 1
        assert "--now" in result.stderr
        assert process.is_alive()
        result = run_haltsweep("stop", "synthetic", *runs, "--now")
        assert (result.returncode, result.stderr) == (0, "")
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    assert read_events(sweep)[-1].payload == {"reason": "interrupted"}
