"""kill -9 of a launch before its first trial, at many moments: the next launch of that name finds nothing.

And of a removal: the next one finishes it. `STRIDE` 1 tries every moment, which takes minutes.
"""

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
from tests.faults.kills.chaos import NEVER, Place, _Moments, check_log, ended_well
from tests.orchestrator.ledger.conftest import postgres_server  # noqa: F401 - a fixture
from tests.support.processes.commands import PATIENCE_S, Shell, wait_for
from tests.support.processes.forks import forks
from tests.support.specs.plans import make_arm, make_plan
from tests.support.stores.postgres import postgres_url
from tests.support.sweeps.workloads import PATH

pytestmark = pytest.mark.slow
STRIDE = {"embedded": 7, "postgresql": 11}
PLAN = make_plan([make_arm("one", steps=1)], trials_per_arm=1, seeds=())


def _die_at(moment, place):
    """Transactions of whatever engine count as well."""
    moments = _Moments(place.root / "runs", moment)
    for each in ("begin", "commit"):
        event.listen(Engine, each, lambda *_: moments._moment())


def _launch(place, storage, die_at):
    _die_at(die_at, place)
    setup = Setup(place.data, PATH, storage=storage)
    run_sweep(place.plan, place.folder, setup, "", driver="inline")


def _remove(place, storage, die_at):
    _die_at(die_at, place)
    for gone in unfinished_removals(place.folder.root):
        finish_removal(gone)
    if place.folder.root.exists():
        remove(place.folder, read_setup(place.folder))


def died(what, *arguments):
    process = forks.Process(target=what, args=arguments)
    process.start()
    return not ended_well(process)


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


def moments(root, kind):
    """Every moment to be killed at, with a place of its own, for as long as one likes."""
    for die_at in itertools.count(1, STRIDE[kind]):
        place = Place(root / str(die_at), PLAN)
        place.data.mkdir(parents=True)
        yield die_at, place


@pytest.mark.parametrize("kind", ["embedded", "postgresql"])
def test_a_launch_that_was_killed_is_launched_again(tmp_path, request, kind):
    with storage_of(kind, request) as storage:
        for die_at, place in moments(tmp_path, kind):
            assert died(_launch, place, storage, die_at)
            if any(each.kind is EventKind.ASKED for each in events_of(place, storage)):
                break
            assert not died(_launch, place, storage, NEVER), f"killed at moment {die_at}"
            events = events_of(place, storage)
            check_log(events, PLAN)
            assert [each.name for each in (place.root / "runs").iterdir()] == ["synthetic"]
            if storage is not None:
                assert [each.name for each in summaries(storage)] == ["synthetic"]
            assert not died(_remove, place, storage, NEVER)
        assert die_at > 10, "making folder and ledger must have several moments"


@pytest.mark.parametrize("kind", ["embedded", "postgresql"])
def test_a_removal_that_was_killed_is_finished(tmp_path, request, kind):
    with storage_of(kind, request) as storage:
        for die_at, place in moments(tmp_path, kind):
            assert not died(_launch, place, storage, NEVER)
            last = not died(_remove, place, storage, die_at)
            if not last:
                assert not died(_remove, place, storage, NEVER), f"killed at moment {die_at}"
            assert list((place.root / "runs").iterdir()) == []
            assert storage is None or summaries(storage) == []
            if last:
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
def test_the_command_while_it_builds_data(tmp_path, end):
    """As people meet it: Ctrl-C or kill -9 while data are built, then the same command again."""
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
        shown = process.communicate(timeout=PATIENCE_S)[1]
    runs = SweepFolder(shell.folder / "runs")
    if end == "interrupt":
        assert process.returncode == 130
        assert "interrupted before the first trial of 'tiny': no files remain; launch it again" in shown
        assert not runs.root.exists()
    done = shell.run(*launch)
    assert done.code == 0, done.err
    assert "trials: 4 finished" in done.out
    left = {each.name for each in runs.root.iterdir() if each.name.startswith(".")}
    assert not left
