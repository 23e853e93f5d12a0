"""An extension replaces the plan in the folder of a sweep atomically, and keeps all editions."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.signals import Interrupts
from orchestrator.execution.sweep.extend_folder import commit_extension, editions
from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.execution.sweep.open_sweep import open_sweep
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json, read_plan
from tests.support.processes.commands import PATIENCE_S
from tests.support.sweeps.killed_extensions import EXTENSION, NEW_PLAN, OLD_PLAN


@pytest.fixture
def folder(tmp_path):
    sweep_folder = SweepFolder(tmp_path / OLD_PLAN.name)
    create_sweep_folder(OLD_PLAN, sweep_folder, "old: 1\n", {}, Setup(tmp_path))
    return sweep_folder


def test_killed_extension_leaves_the_old_plan_or_the_new_one(tmp_path):
    command = [sys.executable, "-m", "tests.support.sweeps.killed_extensions", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, result.stderr
    states = json.loads(result.stdout)
    num_old = states.index("new")
    assert states == ["old"] * num_old + ["new"] * (len(states) - num_old)
    assert 10 < num_old < len(states) - 4, "files must be written before and after the change"


def test_every_edition_is_retained(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {"commit": "c0ffee"})
    newest_plan = replace(NEW_PLAN, extended=(EXTENSION, EXTENSION))
    commit_extension(folder, newest_plan, "newer: 1\n", {})
    assert read_plan(folder) == newest_plan
    assert [edition.name for edition in editions(folder)] == ["0", "1", "2"]
    specs = [(edition / "spec.yaml").read_text() for edition in editions(folder)]
    assert specs == ["old: 1\n", "new: 1\n", "newer: 1\n"]
    assert [from_json((edition / "plan.json").read_bytes()) for edition in editions(folder)] == [
        OLD_PLAN,
        NEW_PLAN,
        newest_plan,
    ]
    assert json.loads((editions(folder)[1] / "provenance.json").read_text()) == {"commit": "c0ffee"}


def test_damaged_plan_is_read_from_its_edition(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    folder.plan.write_text("damaged")
    assert read_plan(folder) == NEW_PLAN
    (editions(folder)[1] / "plan.json").write_text("damaged")
    with pytest.raises(StoreError, match=r"plan.json"):
        read_plan(folder)


def test_folder_that_is_not_writable_stays_unchanged(folder, monkeypatch):
    def fail_with_full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestrator.execution.sweep.extend_folder.write_atomically", fail_with_full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    assert read_plan(folder) == OLD_PLAN


def test_session_with_a_plan_from_before_the_extension_runs_nothing(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    opening = open_sweep(
        OLD_PLAN, folder, Setup(folder.root), {}, interrupts=Interrupts(print), watch=Listeners()
    )
    with pytest.raises(StoreError, match="synthetic"), opening:
        pass
    with Ledger.open(folder.ledger_url, OLD_PLAN.name) as ledger:
        assert ledger.last_seq() == 0
        assert not ledger.is_held()
