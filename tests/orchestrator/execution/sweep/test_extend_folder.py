"""An extended plan in the folder of a sweep: whole or not at all, all editions kept."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from orchestrator.errors import StoreError
from orchestrator.execution.live_view import Listeners
from orchestrator.execution.signals import Interrupts
from orchestrator.execution.sweep.extend_folder import commit_extension, editions
from orchestrator.execution.sweep.launch_folder import Setup, publish
from orchestrator.execution.sweep.open_sweep import open_sweep
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.serialise import from_json, read_plan
from tests.support.processes.commands import PATIENCE_S
from tests.support.sweeps.killed_extensions import EXTENSION, NEW_PLAN, OLD_PLAN


@pytest.fixture
def folder(tmp_path):
    made = SweepFolder(tmp_path / OLD_PLAN.name)
    publish(OLD_PLAN, made, "old: 1\n", {}, Setup(tmp_path))
    return made


def test_a_kill_at_any_moment_leaves_the_old_plan_or_the_new_one(tmp_path):
    command = [sys.executable, "-m", "tests.support.sweeps.killed_extensions", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    new = states.index("new")
    assert states == ["old"] * new + ["new"] * (len(states) - new), "there is one moment at which it counts"
    assert new > 10, "files are written before it counts"
    assert len(states) - new > 4, "and others replaced after"


def test_every_edition_is_kept(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {"commit": "c0ffee"})
    newer = replace(NEW_PLAN, extended=(EXTENSION, EXTENSION))
    commit_extension(folder, newer, "newer: 1\n", {})
    assert read_plan(folder) == newer
    assert [each.name for each in editions(folder)] == ["0", "1", "2"]
    kept = [(place / "spec.yaml").read_text() for place in editions(folder)]
    assert kept == ["old: 1\n", "new: 1\n", "newer: 1\n"]
    assert [from_json((place / "plan.json").read_bytes()) for place in editions(folder)] == [
        OLD_PLAN,
        NEW_PLAN,
        newer,
    ]
    assert json.loads((editions(folder)[1] / "provenance.json").read_text()) == {"commit": "c0ffee"}


def test_a_damaged_plan_is_read_from_the_edition_that_is_kept(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    folder.plan.write_text("damaged")
    assert read_plan(folder) == NEW_PLAN
    (editions(folder)[1] / "plan.json").write_text("damaged")
    with pytest.raises(StoreError, match=r"plan.json must be as it was written, and was changed or damaged"):
        read_plan(folder)


def test_a_folder_that_cannot_be_written_stays_as_it_was(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestrator.execution.sweep.extend_folder.write_atomically", full)
    with pytest.raises(StoreError, match="must be writable to be extended"):
        commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    assert read_plan(folder) == OLD_PLAN


def test_what_killed_sessions_left_half_written_is_cleared_away(folder):
    place = folder.root / "extensions" / "1"
    place.mkdir(parents=True)
    for file in (folder.root / "data.json", folder.spec, folder.plan, place / "plan.json"):
        file.with_name(f".{file.name}.7-0123abcd.tmp").write_text("half")
    commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    assert not list(place.glob(".*"))
    opening = open_sweep(
        NEW_PLAN, folder, Setup(folder.root), {}, interrupts=Interrupts(print), watch=Listeners()
    )
    with opening:
        assert not list(folder.root.rglob("*.tmp"))


def test_who_read_the_plan_before_it_was_extended_runs_nothing(folder):
    commit_extension(folder, NEW_PLAN, "new: 1\n", {})
    opening = open_sweep(
        OLD_PLAN, folder, Setup(folder.root), {}, interrupts=Interrupts(print), watch=Listeners()
    )
    with pytest.raises(StoreError, match="synthetic was extended meanwhile; nothing was run"), opening:
        pass
    with Ledger.open(folder.ledger_url, OLD_PLAN.name) as ledger:
        assert ledger.empty
        assert not ledger.held()
