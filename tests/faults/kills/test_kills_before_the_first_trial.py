"""A launch that is killed before its first trial can be launched again; a killed removal is finished by the
next one. `STRIDE` is the distance between two tested moments; 1 tests every moment, which takes minutes."""

import itertools
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.launch import run_sweep
from orchestrator.execution.sweep.launch_folder import Setup, read_setup
from orchestrator.execution.sweep.removal import finish_removal, remove, unfinished_removals
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import summaries
from tests.faults.kills.chaos import NEVER, MomentKiller, SweepSite, check_log, join_session
from tests.orchestrator.ledger.conftest import postgres_server  # noqa: F401 - a fixture
from tests.support.processes.commands import PATIENCE_S, Shell, wait_for
from tests.support.processes.forks import forks
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.workloads import PATH

pytestmark = pytest.mark.slow
STRIDE = {"embedded": 7, "postgresql": 11}
PLAN = make_plan([make_arm("one", steps=1)], trials_per_arm=1, seeds=())


def _arm_kill(moment, place):
    """Kill this process at `moment`; transactions of any database count as moments."""
    kill_moments = MomentKiller(place.root / "runs", moment)
    for name in ("begin", "commit"):
        event.listen(Engine, name, lambda *_: kill_moments.pass_moment())


def _launch(place, storage, die_at):
    _arm_kill(die_at, place)
    setup = Setup(place.data, PATH, storage=storage)
    run_sweep(place.plan, place.folder, setup, "", driver="inline")


def _remove(place, storage, die_at):
    _arm_kill(die_at, place)
    for removal in unfinished_removals(place.folder.root):
        finish_removal(removal)
    if place.folder.root.exists():
        remove(place.folder, read_setup(place.folder))


def is_killed(target, *arguments):
    process = forks.Process(target=target, args=arguments)
    process.start()
    return not join_session(process)


def events_of(place, storage):
    try:
        with Ledger.open(storage or place.folder.ledger_url, place.plan.name) as ledger:
            return list(ledger.events())
    except StoreError:
        return []


@contextmanager
def storage_of(kind, request):
    if kind == "embedded":
        yield None
    else:
        with postgres_url(request) as url:
            yield url


def kill_moments(root, kind):
    """Yield moments to be killed at without end, each with a new sweep."""
    for die_at in itertools.count(1, STRIDE[kind]):
        place = SweepSite(root / str(die_at), PLAN)
        place.data.mkdir(parents=True)
        yield die_at, place


@pytest.mark.parametrize("kind", ["embedded", "postgresql"])
def test_killed_launch_can_be_launched_again(tmp_path, request, kind):
    with storage_of(kind, request) as storage:
        for die_at, place in kill_moments(tmp_path, kind):
            assert is_killed(_launch, place, storage, die_at)
            if any(event.kind is EventKind.ASKED for event in events_of(place, storage)):
                break
            assert not is_killed(_launch, place, storage, NEVER), f"killed at moment {die_at}"
            events = events_of(place, storage)
            check_log(events, PLAN)
            assert [path.name for path in (place.root / "runs").iterdir()] == ["synthetic"]
            if storage is not None:
                assert [summary.name for summary in summaries(storage)] == ["synthetic"]
            assert not is_killed(_remove, place, storage, NEVER)
        assert die_at > 10, "creating the folder and the ledger must have several moments"


@pytest.mark.parametrize("kind", ["embedded", "postgresql"])
def test_killed_removal_is_finished_by_the_next_one(tmp_path, request, kind):
    with storage_of(kind, request) as storage:
        for die_at, place in kill_moments(tmp_path, kind):
            assert not is_killed(_launch, place, storage, NEVER)
            is_last = not is_killed(_remove, place, storage, die_at)
            if not is_last:
                assert not is_killed(_remove, place, storage, NEVER), f"killed at moment {die_at}"
            assert list((place.root / "runs").iterdir()) == []
            assert storage is None or summaries(storage) == []
            if is_last:
                break
        assert die_at > 5, "renaming and deleting must have several moments"


SLOW_DATA = """
import os, time
from pathlib import Path
from trainables.data import store

def build(*_):
    Path(os.environ["BUILDING"]).touch()
    time.sleep(1e6)

store._build = build
from orchestrator.cli.main import run
run()
"""


@pytest.mark.parametrize("end", ["interrupt", "kill"])
def test_launch_interrupted_while_building_data_can_be_repeated(tmp_path, end):
    """A user presses Ctrl-C or kills the process while data are built, then repeats the command."""
    shell = Shell.at(tmp_path)
    launch = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline", "--runs", "runs")
    building = tmp_path / "building"
    command = [sys.executable, "-c", SLOW_DATA, *launch]
    with subprocess.Popen(
        command,
        cwd=shell.folder,
        env={**shell.environment, "BUILDING": str(building)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(building.exists, process)
        (process.kill if end == "kill" else lambda: os.kill(process.pid, 2))()
        error_output = process.communicate(timeout=PATIENCE_S)[1]
    runs = SweepFolder(shell.folder / "runs")
    if end == "interrupt":
        assert process.returncode == 130
        assert "'tiny'" in error_output
        assert not runs.root.exists()
    repeated = shell.run(*launch)
    assert repeated.code == 0, repeated.err
    assert "trials: 4 finished" in repeated.out
    leftovers = {path.name for path in runs.root.iterdir() if path.name.startswith(".")}
    assert not leftovers
