"""A sweep stops with clear advice if its folder is moved or its ledger is replaced."""

import shutil
import time
from pathlib import Path

import pytest

from orchestrator.execution.sweep.folder_watch import FolderLost, FolderWatch
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.sql.database import LedgerReplaced
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.faults.outages.outage_launcher import HERE, make_sweep_plan
from tests.support.processes.forks import run_module
from tests.support.sweeps.histories import DEAD


def move(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


@pytest.mark.slow
def test_moved_folder_stops_the_sweep_with_advice(tmp_path):
    sweep = KillableSweep(tmp_path, make_sweep_plan())
    launcher = ("tests.faults.outages.outage_launcher", tmp_path, HERE)
    process = run_module(*launcher)
    while not (sweep.data / "steps.txt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    move(sweep.folder.root)
    errors = process.communicate(timeout=240)[1]
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    last_line = errors.strip().splitlines()[-1]
    assert "elsewhere" in last_line
    assert "haltsweep resume" in last_line
    shutil.rmtree(sweep.folder.root, ignore_errors=True)
    sweep.folder.root.with_name("elsewhere").rename(sweep.folder.root)
    resume_result = run_module(*launcher)
    assert resume_result.communicate(timeout=240)[1] == ""
    assert resume_result.returncode == 0
    check_log(sweep.events(), sweep.plan)


def test_folder_watch_checks_at_most_once_a_second(tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    folder.root.mkdir()
    with FolderWatch(folder) as watch:
        watch.check(at_once=True)
        folder.root.rmdir()
        watch.check()
        with pytest.raises(FolderLost, match=str(folder.root)):
            watch.check(at_once=True)
        folder.root.mkdir()
        with pytest.raises(FolderLost, match=str(folder.root)):
            watch.check(at_once=True)


def test_replaced_ledger_is_neither_read_nor_written(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", "sweep", create=True) as ledger:
        lease = ledger.claim(DEAD)
        shutil.copy(tmp_path / "ledger.db", tmp_path / "copy")
        (tmp_path / "copy").replace(tmp_path / "ledger.db")
        for use in (lambda: ledger.append([log.release_event(1.0, "done")], lease), ledger.last_seq):
            with pytest.raises(LedgerReplaced):
                use()
