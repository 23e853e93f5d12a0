"""A full disk causes one error with a remedy, wherever a sweep writes, and `resume` continues."""

import pytest

from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.files.disk_errors import FULL
from orchestrator.ledger.events import EventKind
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.faults.outages.outage_launcher import HERE, make_sweep_plan
from tests.support.processes.forks import run_module
from tests.support.processes.logs import content
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan
from tests.support.stores.disks import clear, fill, small_disk
from tests.support.sweeps.workloads import Synthetic

DISK_BYTES = 4 << 20


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "small", DISK_BYTES) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Run the same sweep undisturbed."""
    sweep = KillableSweep(tmp_path_factory.mktemp("straight"), make_sweep_plan(quick=True))
    assert run_session(sweep) == (0, "")
    return sweep


def run_session(sweep, *, fill_at=0):
    """Launch or resume a sweep that fills its disk before event `fill_at`; return exit code and standard
    error."""
    arguments = [sweep.root, HERE, "--quick", "--fill-at", fill_at]
    folder = sweep.root.with_name("launch")  # without files that would be copied to the disk
    folder.mkdir(exist_ok=True)
    process = run_module("tests.faults.outages.outage_launcher", *arguments, folder=folder)
    try:
        _, errors = process.communicate(timeout=300)
        return process.returncode, errors
    finally:
        process.end()


def test_disk_that_fills_up_under_a_sweep_is_named(disk, undisturbed):
    sweep = KillableSweep(disk, make_sweep_plan(quick=True))
    code, errors = run_session(sweep, fill_at=5)
    assert code == 1, errors
    assert "Traceback" not in errors
    last_line = errors.strip().splitlines()[-1]
    assert FULL in last_line
    assert "haltsweep resume" in last_line
    clear(disk)
    assert run_session(sweep)[0] == 0
    check_log(sweep.events(), sweep.plan)
    assert content(sweep.events()) == content(undisturbed.events())


def test_launch_on_a_full_disk_leaves_no_files(disk):
    (disk / "data").mkdir()
    fill(disk)
    sweep = KillableSweep(disk, make_sweep_plan(quick=True))
    code, errors = run_session(sweep)
    assert code == 1
    assert FULL in errors
    clear(disk)
    assert not (disk / "runs" / sweep.plan.name).exists()
    assert run_session(sweep)[0] == 0


class DiskFillingWorkload(Synthetic):
    """A workload that fills the disk before the last checkpoint of a confirm trial."""

    def save(self, folder):
        if self._job.phase == "confirm" and self.finished:
            fill(self._job.data_dir.parent)
        super().save(folder)


def test_missing_last_checkpoint_fails_only_its_posthoc_trials(disk, tmp_path, monkeypatch):
    """The ledger is on another disk, so the sweep continues. Re-evaluations use no older checkpoint."""
    arms, resources = [make_arm("one", steps=4)], Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    posthoc = ({"model.shift": 0.5},)
    plan = make_plan(arms, trials_per_arm=1, seeds=(7,), posthoc=posthoc, resources=resources)
    sweep = KillableSweep(disk, plan, storage=f"sqlite:///{tmp_path / 'ledger.db'}")
    sweep.data.mkdir()
    (tmp_path / "launch").mkdir()
    monkeypatch.chdir(tmp_path / "launch")
    setup = Setup(sweep.data, f"{__name__}:DiskFillingWorkload", storage=sweep.storage)
    finish = run_sweep(plan, sweep.folder, setup, "", driver="inline")
    phases = {trial.trial_id: trial.phase for trial in plan.trials}
    end_events = [event for event in sweep.events() if event.kind is EventKind.ENDED]
    ends_by_phase = {
        phases[event.trial_id]: (event.payload["kind"], event.payload["reason"]) for event in end_events
    }
    assert (finish.exit_code, finish.left) == (1, 0)
    assert ends_by_phase["search"][0] == "finished"
    kind, reason = ends_by_phase["confirm"]
    assert kind == "finished"
    assert "OSError(28, 'No space left" in reason
    kind, reason = ends_by_phase["posthoc"]
    (confirm,) = (trial.trial_id for trial in plan.trials if trial.phase == "confirm")
    older = sorted(path.name for path in sweep.folder.checkpoint(confirm).iterdir())
    assert older == ["step-000000002", "step-000000003"]
    assert kind == "crashed"
    assert f"{confirm}/step-000000004" in reason
    assert "Traceback" not in reason
