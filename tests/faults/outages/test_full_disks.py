"""A disk that is full, at every place where a sweep writes: one error with its remedy, and resume goes on."""

import shutil
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.spec.section import Resources
from orchestrator.tracking.parquet import ParquetFiles
from orchestrator.tracking.state import projection_lock
from tests.faults.kills.chaos import Place, check_log
from tests.faults.outages.outage_launcher import HERE, sweep
from tests.support.processes.forks import run_module
from tests.support.processes.logs import content
from tests.support.specs.plans import AT_EVERY_REPORT_S, make_arm, make_plan
from tests.support.stores.disks import clear, fill, small_disk
from tests.support.sweeps.workloads import Synthetic

ROOM = 4 << 20
TRACKED = 40
"""The event before which the disk of a sweep that writes MLflow, elsewhere, fills up."""
REMEDY = "the disk is full: free some space, or have your quota raised"


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "small", ROOM) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The same sweep, undisturbed."""
    place = Place(tmp_path_factory.mktemp("straight"), sweep(quick=True))
    assert session(place) == (0, "")
    return place


def session(place, *, fill_at=0, tracking=None):
    """Exit code and standard error of a launch or resume that fills its disk before event `fill_at`."""
    shown = [place.root, "inline", HERE, "--quick", "--fill-at", fill_at]
    shown += ["--tracking", tracking] if tracking else []
    folder = place.root.with_name("launch")  # with no files to copy to the disk
    folder.mkdir(exist_ok=True)
    process = run_module("tests.faults.outages.outage_launcher", *shown, folder=folder)
    try:
        _, said = process.communicate(timeout=300)
        return process.returncode, said
    finally:
        process.end()


@pytest.mark.parametrize("fill_at", [5, pytest.param(TRACKED, marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_under_a_sweep_is_named(disk, tmp_path, straight, fill_at):
    place = Place(disk, sweep(quick=True))
    tracking = f"sqlite:///{tmp_path / 'mlflow.db'}" if fill_at == TRACKED else None
    code, shown = session(place, fill_at=fill_at, tracking=tracking)
    assert code == 1, shown
    assert "Traceback" not in shown
    last = shown.strip().splitlines()[-1]
    assert REMEDY in last
    assert "haltsweep resume" in last
    clear(disk)
    assert session(place)[0] == 0
    check_log(place.events(), place.plan)
    assert content(place.events()) == content(straight.events())


def test_a_launch_on_a_full_disk_leaves_nothing(disk):
    (disk / "data").mkdir()
    fill(disk)
    place = Place(disk, sweep(quick=True))
    code, shown = session(place)
    assert code == 1
    assert "could not be made" in shown
    assert REMEDY in shown
    clear(disk)
    assert not (disk / "runs" / place.plan.name).exists()
    assert session(place)[0] == 0


class Filling(Synthetic):
    """Fills the disk before the last checkpoint of a confirm trial."""

    def save(self, folder):
        if self._job.phase == "confirm" and self.finished:
            fill(self._job.data_dir.parent)
        super().save(folder)


def test_a_last_checkpoint_without_room_fails_its_posthoc_trials_alone(disk, tmp_path, monkeypatch):
    """The ledger is elsewhere, as in PostgreSQL: the sweep goes on. An older checkpoint is not measured."""
    arms, resources = [make_arm("one", steps=4)], Resources(checkpoint_seconds=AT_EVERY_REPORT_S)
    posthoc = ({"model.shift": 0.5},)
    plan = make_plan(arms, trials_per_arm=1, seeds=(7,), posthoc=posthoc, resources=resources)
    place = Place(disk, plan, storage=f"sqlite:///{tmp_path / 'ledger.db'}")
    place.data.mkdir()
    (tmp_path / "launch").mkdir()
    monkeypatch.chdir(tmp_path / "launch")
    setup = Setup(place.data, f"{__name__}:Filling", storage=place.storage)
    finish = run_sweep(plan, place.folder, setup, "", driver="inline")
    phases = {trial.trial_id: trial.phase for trial in plan.trials}
    ended = [each for each in place.events() if each.kind is EventKind.ENDED]
    ends = {phases[each.trial_id]: (each.payload["kind"], each.payload["reason"]) for each in ended}
    assert (finish.exit_code, finish.left) == (1, 0)
    assert ends["search"] == ("finished", "ran to step 4")
    kind, reason = ends["confirm"]
    assert kind == "finished"
    assert reason.startswith("ran to step 4, without its last checkpoint: OSError(28, 'No space left")
    kind, reason = ends["posthoc"]
    (confirm,) = (each.trial_id for each in plan.trials if each.phase == "confirm")
    older = sorted(each.name for each in place.folder.checkpoint(confirm).iterdir())
    assert older == ["step-000000002", "step-000000003"]
    assert kind == "crashed"
    assert f"{confirm}/step-000000004 is not there: it found no room" in reason
    assert "Traceback" not in reason


@pytest.fixture
def done(disk, straight):
    """A finished sweep, copied to a disk that is full then."""
    target = disk / "runs" / straight.plan.name
    target.parent.mkdir()
    shutil.copytree(straight.folder.root, target)
    return Place(disk, straight.plan)


def test_parquet_on_a_full_disk_names_its_remedy(disk, done):
    fill(disk)
    with (
        Ledger.open(f"sqlite:///{straight_ledger(done, disk)}", done.plan.name) as ledger,
        pytest.raises(StoreError, match=rf"the Parquet files .*{REMEDY}, then run `haltsweep sync`"),
    ):
        ParquetFiles(done.folder, done.plan, ledger).update()


def straight_ledger(done, disk) -> Path:
    """A copy of the ledger elsewhere: only the projection's disk is full."""
    copy = disk.with_name("ledger.db")
    shutil.copy(done.folder.ledger, copy)
    return copy


def test_the_lock_is_held_on_a_full_disk_or_says_why_not(disk, done):
    with projection_lock(done.folder.root, 0.0):
        pass
    fill(disk)
    with projection_lock(done.folder.root, 0.0):
        pass
    (done.folder.root / ".tracking.lock").unlink()
    fill_inodes(disk)
    with (
        pytest.raises(StoreError, match=rf"the lock .* could not be made: .*{REMEDY}"),
        projection_lock(done.folder.root, 0.0),
    ):
        pass


def fill_inodes(disk: Path) -> None:
    number = 0
    while True:
        try:
            (disk / f"inode-{number}").touch()
        except OSError:
            return
        number += 1


def test_reading_from_a_full_disk_works_or_names_the_remedy(disk, done):
    fill(disk)
    try:
        with Ledger.open(done.folder.ledger_url, done.plan.name) as ledger:
            assert ledger.last_seq() > 0
    except StoreError as error:
        shown = str(error)
    else:
        shown = REMEDY
    assert REMEDY in shown
