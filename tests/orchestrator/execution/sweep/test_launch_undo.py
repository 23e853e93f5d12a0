"""A launch that fails before its first trial leaves no files, whatever the cause, and can be repeated."""

import json
import os
import signal
from dataclasses import asdict, replace

import pytest

from orchestrator.errors import ExecutorError, InputError, LaunchUndone, StoreError
from orchestrator.execution.sweep import launch
from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import LAUNCHER_FILE, Setup, create_sweep_folder
from orchestrator.execution.sweep.launch_undo import undo_launch_folder
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder, LeaseHeldError
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import has_sweep, read_summaries
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD
from tests.support.sweeps.workloads import PATH
from trainables.process_identity import process_start

PLAN = make_plan(1, trials_per_arm=1, seeds=())


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path / "new" / "runs" / "synthetic")


@pytest.fixture(params=["embedded", "shared"])
def setup(request, tmp_path):
    storage = f"sqlite:///{tmp_path / 'team.db'}" if request.param == "shared" else None
    return Setup(tmp_path / "data", PATH, storage=storage)


def launch_sweep(folder, setup, plan=PLAN, **options):
    return run_sweep(plan, folder, setup, "", driver="inline", **options)


def assert_no_files(folder, setup):
    assert not folder.root.parent.exists() or not list(folder.root.parent.iterdir())
    if setup.storage is not None:
        assert not has_sweep(setup.storage, folder.name)


def test_failure_before_the_first_trial_leaves_no_files(folder, setup, monkeypatch):
    def fail(*_, **__):
        raise ExecutorError("no cluster")

    with monkeypatch.context() as patch:
        patch.setattr(launch, "run_inline", fail)
        with pytest.raises(ExecutorError, match="no cluster"):
            launch_sweep(folder, setup)
    assert_no_files(folder, setup)
    assert not folder.root.parent.exists(), "the launch created the folder of runs"
    assert launch_sweep(folder, setup).exit_code == 0


def test_interrupt_before_the_first_trial_leaves_no_files(folder, setup, monkeypatch):
    def interrupt(*_, stop, **__):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "run_inline", interrupt)
        with pytest.raises(LaunchUndone, match="'synthetic'") as raised:
            launch_sweep(folder, setup)
    assert raised.value.exit_code == 130
    assert_no_files(folder, setup)
    assert launch_sweep(folder, setup).exit_code == 0


def test_later_failure_keeps_the_sweep(folder, setup, monkeypatch):
    def fail(recorder, *_, **__):
        assert recorder.next_attempt() is not None
        raise StoreError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(launch, "run_inline", fail)
        with pytest.raises(StoreError, match="no disk"):
            launch_sweep(folder, setup)
    with pytest.raises(InputError, match="'synthetic'"):
        launch_sweep(folder, setup)
    assert resume_sweep(folder, driver="inline").exit_code == 0


def write_killed_launch(folder, setup, holder, *, with_ledger=True):
    """Write the files of a launch by `holder` that was killed before its first trial."""
    create_sweep_folder(PLAN, folder, "", {}, setup)
    (folder.root / LAUNCHER_FILE).write_text(json.dumps(asdict(holder)))
    if with_ledger:
        with Ledger.open(setup.ledger_url(folder), folder.name, create=True, clock=lambda: 0.0) as ledger:
            ledger.claim(holder)


DEAD_HERE = replace(Holder.current(), process_started_at=1.0)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_leftovers_of_a_killed_launch_are_cleared_by_the_next_launch(folder, setup, with_ledger):
    write_killed_launch(folder, setup, DEAD_HERE, with_ledger=with_ledger)
    other_plan = replace(PLAN, spec_digest="another")
    assert launch_sweep(folder, setup, other_plan).exit_code == 0


def test_running_launch_is_not_cleared(folder, setup):
    this_process = Holder.current()
    parent = replace(this_process, pid=os.getppid(), process_started_at=process_start(os.getppid()))
    write_killed_launch(folder, setup, parent, with_ledger=False)
    with pytest.raises(InputError, match=rf"process {os.getppid()} .*'synthetic'"):
        launch_sweep(folder, setup)
    assert folder.plan.exists()


def test_launch_on_another_machine_is_presumed_alive_and_can_be_taken_over(folder, setup):
    write_killed_launch(folder, setup, DEAD, with_ledger=False)
    with pytest.raises(InputError, match="--take-over"):
        launch_sweep(folder, setup)
    assert launch_sweep(folder, setup, on_fenced=lambda _: None).exit_code == 0


def test_launch_that_was_taken_over_keeps_the_new_folder(folder, setup):
    write_killed_launch(folder, setup, DEAD_HERE, with_ledger=False)
    undo_launch_folder(folder)
    assert folder.plan.exists()


def test_sweep_of_the_same_name_in_the_database_is_not_continued(folder, tmp_path):
    setup = Setup(tmp_path / "data", PATH, storage=f"sqlite:///{tmp_path / 'shared.db'}")
    assert launch_sweep(folder, setup).exit_code == 0
    other_folder = SweepFolder(tmp_path / "elsewhere" / "synthetic")
    with pytest.raises(InputError, match="'synthetic'"):
        launch_sweep(other_folder, setup)
    assert not other_folder.root.parent.exists()
    (summary,) = read_summaries(setup.storage)
    assert summary.num_ended == 1


def test_rows_of_a_simultaneous_launch_are_kept(folder, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    setup = Setup(tmp_path / "data", PATH, storage=url)
    with Ledger.open(url, "synthetic", create=True) as ledger:
        ledger.claim(Holder.current())
        monkeypatch.setattr(launch, "refuse_foreign", lambda *_: None)
        with pytest.raises(LeaseHeldError):
            launch_sweep(folder, setup)
        assert ledger.is_held()
    assert not folder.root.exists()


@pytest.mark.parametrize("damage", ["launch.json", LAUNCHER_FILE, "plan.json"])
def test_unclear_leftovers_are_kept(folder, setup, damage):
    write_killed_launch(folder, setup, DEAD_HERE)
    (folder.root / "checkpoints").mkdir()
    (folder.root / damage).write_text("{}")
    with pytest.raises((InputError, StoreError), match=r"synthetic|plan"):
        launch_sweep(folder, setup)
    assert (folder.root / "checkpoints").exists()
