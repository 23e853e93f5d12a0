"""A launch that is killed before its first trial can be launched again; a killed removal is finished by the
next one. `STRIDE` is the distance between two tested moments; 1 tests every moment, which takes minutes."""

import itertools

import pytest
from sqlalchemy import Engine, event

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup, read_setup
from orchestrator.execution.sweep.removal import finish_removal, remove_sweep, unfinished_removals
from orchestrator.ledger.events import EventKind
from tests.faults.kills.chaos import NEVER, KillableSweep, MomentKiller, check_log, join_session
from tests.support.processes.forks import forks
from tests.support.specs.plans import make_arm, make_plan
from tests.support.sweeps.workloads import PATH

pytestmark = pytest.mark.slow
STRIDE = 9
PLAN = make_plan([make_arm("one", steps=1)], trials_per_arm=1, seeds=())


def _arm_kill(moment, sweep):
    """Kill this process at `moment`; transactions of any database count as moments."""
    kill_moments = MomentKiller(sweep.root / "runs", moment)
    for name in ("begin", "commit"):
        event.listen(Engine, name, lambda *_: kill_moments.pass_moment())


def _launch(sweep, die_at):
    _arm_kill(die_at, sweep)
    setup = Setup(sweep.data, PATH)
    run_sweep(sweep.plan, sweep.folder, setup, "", driver="inline")


def _remove(sweep, die_at):
    _arm_kill(die_at, sweep)
    for removal in unfinished_removals(sweep.folder.root):
        finish_removal(removal)
    if sweep.folder.root.exists():
        remove_sweep(sweep.folder, read_setup(sweep.folder))


def is_killed(target, *arguments):
    process = forks.Process(target=target, args=arguments)
    process.start()
    return not join_session(process)


def events_of(sweep):
    try:
        return sweep.events()
    except StoreError:
        return []


def kill_moments(root):
    """Yield moments to be killed at without end, each with a new sweep."""
    for die_at in itertools.count(1, STRIDE):
        sweep = KillableSweep(root / str(die_at), PLAN)
        sweep.data.mkdir(parents=True)
        yield die_at, sweep


def test_killed_launch_can_be_launched_again(tmp_path):
    for die_at, sweep in kill_moments(tmp_path):
        assert is_killed(_launch, sweep, die_at)
        if any(event.kind is EventKind.PARAMS_ASSIGNED for event in events_of(sweep)):
            break
        assert not is_killed(_launch, sweep, NEVER), f"killed at moment {die_at}"
        check_log(sweep.events(), PLAN)
        assert [path.name for path in (sweep.root / "runs").iterdir()] == ["synthetic"]
    assert die_at > 10, "creating the folder and the ledger must have several moments"


def test_killed_removal_is_finished_by_the_next_one(tmp_path):
    for die_at, sweep in kill_moments(tmp_path):
        assert not is_killed(_launch, sweep, NEVER)
        is_last = not is_killed(_remove, sweep, die_at)
        if not is_last:
            assert not is_killed(_remove, sweep, NEVER), f"killed at moment {die_at}"
        assert list((sweep.root / "runs").iterdir()) == []
        if is_last:
            break
    assert die_at > 5, "renaming and deleting must have several moments"
