"""Output of trials is retained after a kill -9 of the trial or of the launcher."""

import json
import os
import subprocess

import pytest

from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep
from tests.support.processes.commands import COMMAND, PATIENCE_S
from tests.support.processes.forks import forks
from tests.support.processes.process_lookup import wait_until
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan
from tests.support.sweeps.workloads import Synthetic

pytestmark = pytest.mark.slow
WORKLOAD = "tests.faults.kills.test_output_retention:PrintingWorkload"


class PrintingWorkload(Synthetic):
    """A workload that prints at every step."""

    def advance(self):
        step = self._step + 1
        print(f"step {step} of {os.getpid()}")
        if step == 2:
            print("last line of a worker", flush=True)
        return super().advance()


def make_sweep_plan(fault):
    arms = [make_arm(fault, tally=True, fault=fault, steps=3)]
    return make_plan(
        arms, trials_per_arm=1, seeds=(), resources=Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    )


def _session(sweep):
    sweep.data.mkdir(parents=True, exist_ok=True)
    if sweep.folder.plan.exists():
        resume_sweep(sweep.folder, driver="inline")
    else:
        run_sweep(sweep.plan, sweep.folder, Setup(sweep.data, WORKLOAD), "", driver="inline")


def run_session(sweep):
    process = forks.Process(target=_session, args=(sweep,))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


def trial_attempts(sweep, fault):
    """Return the attempts of the trial with `fault`, as `haltsweep logs --json` prints them."""
    (trial,) = (trial.trial_id for trial in sweep.plan.trials if trial.arm == fault)
    command = [COMMAND, "logs", str(sweep.folder.root), trial, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return json.loads(result.stdout)["attempts"]


def stored_logs(sweep):
    return b"".join(path.read_bytes() for path in sweep.folder.logs.rglob("*") if path.is_file())


def test_logs_contain_the_last_output_of_a_killed_trial(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan("kill"))
    assert run_session(sweep) == 0
    first, second = trial_attempts(sweep, "kill")
    assert (first["outcome"], second["outcome"]) == ("stopped", "finished")
    assert "SIGKILL" in first["reason"]
    assert "last line of a worker\n" in first["output"]
    assert "step 1 of" not in second["output"], "each attempt must have a separate log"
    assert not list(sweep.folder.logs.rglob("*.raw")), "logs are finished when the process has ended"


def test_logs_contain_the_last_output_before_the_launcher_was_killed(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan("hang"))
    process = forks.Process(target=_session, args=(sweep,))
    process.start()
    wait_until(lambda: b"step 2 of" in stored_logs(sweep), "the trial hangs")
    process.kill()
    process.join(PATIENCE_S)
    (attempt,) = trial_attempts(sweep, "hang")
    assert (attempt["outcome"], attempt["reason"]) == (None, "")
    assert "step 2 of" in attempt["output"]
    wait_until(lambda: not list(sweep.folder.logs.rglob("*.raw")), "the log is finished")
    assert "step 2 of" in trial_attempts(sweep, "hang")[0]["output"]
