"""`haltsweep list` shows every sweep with its state; damaged or foreign folders hide no other sweep."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import trial_of

PLAN = make_plan(2, trials_per_arm=2, seeds=())


def create_sweep(tmp_path, name, *outcomes, storage=None, keep_folder=True, close_reason=None):
    """Create a sweep of four trials whose first trials ended with `outcomes`."""
    folder = SweepFolder(tmp_path / "runs" / name)
    setup = Setup(tmp_path / "data", storage=storage)
    create_sweep_folder(replace(PLAN, name=name), folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        for number, outcome in enumerate(outcomes):
            trial = trial_of(PLAN, number)
            end_event = log.end_event(3.0, trial.trial_id, Outcome(outcome, "because"))
            ledger.append(
                [log.params_event(1.0, trial), log.start_event(2.0, trial.trial_id, 1), end_event], lease
            )
        if close_reason:
            ledger.append([log.release_event(4.0, close_reason)], lease)
        ledger.release(lease)
    if not keep_folder:
        shutil.rmtree(folder.root)
    return folder


def list_sweeps(haltsweep, *options):
    result = haltsweep("list", "--json", *options)
    assert (result.code, result.err) == (0, "")
    return {row["name"]: row for row in json.loads(result.out)}


FINISHED, CRASHED = OutcomeKind.FINISHED, OutcomeKind.CRASHED


def test_list_shows_every_state(haltsweep, tmp_path):
    create_sweep(tmp_path, "all-done", *[FINISHED] * 3, CRASHED)
    create_sweep(tmp_path, "all-failed", *[CRASHED] * 4)
    create_sweep(tmp_path, "begun", FINISHED)
    busy_folder = create_sweep(tmp_path, "busy", FINISHED, CRASHED)
    with Ledger.open(busy_folder.ledger_url, "busy") as ledger:
        ledger.claim(Holder.current())
        rows = list_sweeps(haltsweep)
        output = haltsweep("list").out
    states = {"all-done": "finished", "all-failed": "failed", "begun": "unfinished", "busy": "running"}
    assert {name: row["state"] for name, row in rows.items()} == states
    assert [rows["busy"][key] for key in ("arms", "ended", "planned", "failed")] == [2, 2, 4, 1]
    assert rows["begun"]["heard_at"] == 3.0
    assert rows["busy"]["heard_at"] > 1e9
    assert all(name in output for name in states)


def test_sweep_without_a_ledger_is_unfinished(haltsweep, tmp_path):
    folder = create_sweep(tmp_path, "early")
    folder.ledger.unlink()
    row = list_sweeps(haltsweep)["early"]
    assert (row["state"], row["ended"], row["heard_at"]) == ("unfinished", 0, None)
    assert not folder.ledger.exists()
    folder.ledger.touch()  # as after a kill during its creation
    assert list_sweeps(haltsweep)["early"] == row


def test_damaged_or_foreign_folders_hide_no_other_sweep(haltsweep, tmp_path):
    runs = tmp_path / "runs"
    for name in ("bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "renamed", "sound"):
        create_sweep(tmp_path, name, FINISHED)
    (runs / "bad-plan" / "plan.json").write_bytes(b"\xff\x00[")
    (runs / "bad-setup" / "launch.json").write_text("[]")
    (runs / "bad-ledger" / "ledger.db").write_bytes(b"\x1b[31mno database" * 500)
    (runs / "lost-ledger" / "ledger.db").unlink()
    (runs / "lost-ledger" / "checkpoints").mkdir()
    (runs / "renamed").rename(runs / "other")
    (runs / "holidays").mkdir()
    (runs / "a-file").write_text("")
    (runs / "round").symlink_to("round")
    (runs / "full-of-pipes").mkdir()
    for name in ("spec.yaml", "plan.json", "launch.json", "ledger.db"):
        os.mkfifo(runs / "full-of-pipes" / name)
    rows = list_sweeps(haltsweep)
    states = {name: row["state"] for name, row in rows.items()}
    damaged = {"bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "other", "full-of-pipes"}
    assert states == {**dict.fromkeys(damaged, "damaged"), "sound": "unfinished"}
    assert all(rows[name]["why"] for name in damaged)
    assert "\x1b" not in haltsweep("list").out


def test_list_shows_all_sweeps_of_a_database_without_their_folders(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    create_sweep(tmp_path, "here", FINISHED, storage=url)
    create_sweep(tmp_path, "elsewhere", FINISHED, CRASHED, storage=url, keep_folder=False)
    create_sweep(tmp_path, "elsewhere-done", FINISHED, storage=url, keep_folder=False, close_reason="done")
    assert set(list_sweeps(haltsweep)) == {"here"}
    rows = list_sweeps(haltsweep, "--storage", url)
    assert [(name, row["state"], row["ended"], row["planned"]) for name, row in rows.items()] == [
        ("here", "unfinished", 1, 4),
        ("elsewhere", "unfinished", 2, None),
        ("elsewhere-done", "finished", 1, 1),
    ]


@pytest.mark.parametrize(
    "command", [("list",), ("verify", "piped"), ("resume", "piped", "--driver", "inline")], ids=" ".join
)
def test_command_names_a_pipe_in_place_of_the_ledger(haltsweep, tmp_path, command):
    folder = create_sweep(tmp_path, "piped")
    folder.ledger.unlink()
    os.mkfifo(folder.ledger)
    result = haltsweep(*command)
    assert str(folder.ledger) in result.out + result.err
    assert result.code == (0 if command == ("list",) else 1)
