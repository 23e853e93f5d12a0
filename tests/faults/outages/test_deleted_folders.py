"""A sweep stops with clear advice if its folder or ledger is deleted, moved or replaced."""

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.sweep.folder_watch import FolderGone, FolderWatch
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.sql.database import LedgerReplaced
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import SweepSite, check_log
from tests.faults.outages.outage_launcher import HERE, make_sweep_plan
from tests.support.processes.forks import run_module
from tests.support.sweeps.histories import DEAD

CHANGES = ["delete", "move", "replace", "unlink ledger", "replace ledger"]
WITH_DRIVERS = [("move", "inline"), ("replace ledger", "inline"), ("delete", "ray")]
MESSAGES = {
    "delete": "it was deleted|has been deleted or moved|it was replaced by another",
    "move": "it was moved to",
    "replace": "it was moved to .*what is at .* now must be moved away first",
    "unlink ledger": "has been deleted or moved",
    "replace ledger": "has been replaced by another file",
}


def change_folder(root: Path, kind: str) -> None:
    ledger = root / "ledger.db"
    moved_folder = root.with_name("elsewhere")
    match kind:
        case "delete":
            while root.exists():  # a worker may write meanwhile
                shutil.rmtree(root, ignore_errors=True)
        case "move":
            root.rename(moved_folder)
        case "replace":
            copy = root.with_name("copy")
            with suppress(shutil.Error):  # the sweep may delete files meanwhile
                shutil.copytree(root, copy)
            # Replace the folder at once: a missing folder would be reported as moved.
            root.rename(moved_folder)
            copy.rename(root)
        case "unlink ledger":
            ledger.unlink()
        case "replace ledger":
            shutil.copy(ledger, root / "copy")
            (root / "copy").replace(ledger)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "driver"), WITH_DRIVERS)
def test_changed_folder_stops_the_sweep_with_advice(tmp_path, kind, driver):
    place = SweepSite(tmp_path, make_sweep_plan())
    launcher = ("tests.faults.outages.outage_launcher", tmp_path, driver, HERE, "--cpus", 1)
    process = run_module(*launcher)
    while not (place.data / "steps.txt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    change_folder(place.folder.root, kind)
    errors = process.communicate(timeout=240)[1]
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    last_line = errors.strip().splitlines()[-1]
    assert re.search(MESSAGES[kind], last_line)
    assert "haltsweep resume" in last_line
    if (kind, driver) == ("move", "inline"):
        shutil.rmtree(place.folder.root, ignore_errors=True)
        place.folder.root.with_name("elsewhere").rename(place.folder.root)
        resume_result = run_module(*launcher)
        assert resume_result.communicate(timeout=240)[1] == ""
        assert resume_result.returncode == 0
        check_log(place.events(), place.plan)


def test_moved_folder_is_not_recreated(tmp_path):
    place = SweepSite(tmp_path, make_sweep_plan(quick=True))
    with pytest.raises(FolderGone, match=r"/elsewhere .*`haltsweep resume"):
        _run_session_with(place, lambda: change_folder(place.folder.root, "move"))
    leftovers = [path.name for path in place.folder.root.glob("*")]
    assert leftovers in ([], ["checkpoints"]), "at most a checkpoint in progress may recreate the folder"


def _run_session_with(place, action):
    from orchestrator.execution.live_view import Listeners
    from tests.faults.kills.chaos import launch_or_resume

    place.data.mkdir(parents=True, exist_ok=True)
    snapshots = []

    def on_change(snapshot):
        snapshots.append(snapshot)
        if len(snapshots) == 2:
            action()
            time.sleep(1.1)  # the watch checks the folder once a second

    return launch_or_resume(place, "inline", watch=Listeners(on_change=on_change)).exit_code


def test_folder_watch_checks_at_most_once_a_second(tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    folder.root.mkdir()
    with FolderWatch(folder) as watch:
        watch.check(at_once=True)
        folder.root.rmdir()
        watch.check()
        with pytest.raises(FolderGone, match=str(folder.root)):
            watch.check(at_once=True)
        folder.root.mkdir()
        with pytest.raises(FolderGone, match=str(folder.root)):
            watch.check(at_once=True)


@pytest.mark.parametrize("kind", ["unlink ledger", "replace ledger"])
def test_replaced_ledger_is_neither_read_nor_written(tmp_path, kind):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", "sweep", create=True) as ledger:
        lease = ledger.claim(DEAD)
        change_folder(tmp_path, kind)
        for use in (lambda: ledger.append([log.closed(1.0, "done")], lease), ledger.last_seq):
            with pytest.raises(LedgerReplaced):
                use()
    assert issubclass(LedgerReplaced, StoreError)
