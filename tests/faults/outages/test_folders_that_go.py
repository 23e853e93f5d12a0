"""A sweep whose folder or ledger is deleted, moved or replaced under it stops, and says what to do."""

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
from tests.faults.kills.chaos import Place, check_log
from tests.faults.outages.outage_launcher import HERE, sweep
from tests.support.processes.forks import run_module
from tests.support.sweeps.histories import DEAD

CHANGES = ["delete", "move", "replace", "unlink ledger", "replace ledger"]
WITH_DRIVERS = [("move", "inline"), ("replace ledger", "inline"), ("delete", "ray")]
TOLD = {
    "delete": "it was deleted|has been deleted or moved|it was replaced by another",  # whichever goes first
    "move": "it was moved to",
    "replace": "it was moved to .*what is at .* now must be moved away first",
    "unlink ledger": "has been deleted or moved",
    "replace ledger": "has been replaced by another file",
}


def change(root: Path, how: str) -> None:
    ledger = root / "ledger.db"
    aside = root.with_name("elsewhere")
    match how:
        case "delete":
            while root.exists():  # a worker may write meanwhile
                shutil.rmtree(root, ignore_errors=True)
        case "move":
            root.rename(aside)
        case "replace":
            copy = root.with_name("copy")
            with suppress(shutil.Error):  # what the sweep deletes meanwhile cannot be copied
                shutil.copytree(root, copy)
            # At once: a folder that is only away is told as moved.
            root.rename(aside)
            copy.rename(root)
        case "unlink ledger":
            ledger.unlink()
        case "replace ledger":
            shutil.copy(ledger, root / "copy")
            (root / "copy").replace(ledger)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "driver"), WITH_DRIVERS)
def test_it_is_noticed_and_told(tmp_path, how, driver):
    place = Place(tmp_path, sweep())
    launcher = ("tests.faults.outages.outage_launcher", tmp_path, driver, HERE, "--cpus", 1)
    process = run_module(*launcher)
    while not (place.data / "steps.txt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    change(place.folder.root, how)
    shown = process.communicate(timeout=240)[1]
    assert process.returncode == 1, shown
    assert "Traceback" not in shown
    last = shown.strip().splitlines()[-1]
    assert re.search(TOLD[how], last)
    assert "haltsweep resume" in last
    if (how, driver) == ("move", "inline"):
        shutil.rmtree(place.folder.root, ignore_errors=True)
        place.folder.root.with_name("elsewhere").rename(place.folder.root)
        again = run_module(*launcher)
        assert again.communicate(timeout=240)[1] == ""
        assert again.returncode == 0
        check_log(place.events(), place.plan)


def test_nothing_is_made_where_a_folder_was(tmp_path):
    place = Place(tmp_path, sweep(quick=True))
    with pytest.raises(
        FolderGone, match=r"it was moved to .*/elsewhere \(.*move it back, then `haltsweep resume"
    ):
        _session_with(place, lambda: change(place.folder.root, "move"))
    left = [each.name for each in place.folder.root.glob("*")]
    assert left in ([], ["checkpoints"]), "at most what was being saved is made where it was"


def _session_with(place, act):
    from orchestrator.execution.live_view import Listeners
    from tests.faults.kills.chaos import go

    place.data.mkdir(parents=True, exist_ok=True)
    seen = []

    def changed(snapshot):
        seen.append(snapshot)
        if len(seen) == 2:
            act()
            time.sleep(1.1)  # looked at once a second

    return go(place, "inline", watch=Listeners(on_change=changed)).exit_code


def test_a_look_once_a_second_is_enough(tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    folder.root.mkdir()
    with FolderWatch(folder) as presence:
        presence.check(at_once=True)
        folder.root.rmdir()
        presence.check()
        with pytest.raises(FolderGone, match=r"it was deleted .*restore it from a backup"):
            presence.check(at_once=True)
        folder.root.mkdir()
        with pytest.raises(FolderGone, match=r"replaced by another .*must be moved away first"):
            presence.check(at_once=True)


@pytest.mark.parametrize("how", ["unlink ledger", "replace ledger"])
def test_a_ledger_that_is_another_is_neither_read_nor_written(tmp_path, how):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", "sweep", create=True) as ledger:
        lease = ledger.claim(DEAD)
        change(tmp_path, how)
        for use in (lambda: ledger.append([log.closed(1.0, "done")], lease), ledger.last_seq):
            with pytest.raises(LedgerReplaced, match=TOLD[how]):
                use()
    assert issubclass(LedgerReplaced, StoreError)
