"""`haltsweep list` shows every sweep with its state; damaged or foreign folders hide no other sweep."""

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.cli.commands.status import SweepState, sweep_state
from orchestrator.errors import InputError
from orchestrator.execution.sweep.launch_folder import Setup, publish
from orchestrator.identity import SweepFolder
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.sql.engine import require_answer
from orchestrator.ledger.store import Ledger
from orchestrator.trials import Outcome, OutcomeKind
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, trial_of

PLAN = make_plan(2, trials_per_arm=2, seeds=())


def create_sweep(tmp_path, name, *outcomes, storage=None, keep_folder=True, close_reason=None):
    """Create a sweep of four trials whose first trials ended with `outcomes`."""
    folder = SweepFolder(tmp_path / "runs" / name)
    setup = Setup(tmp_path / "data", storage=storage)
    publish(replace(PLAN, name=name), folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        for number, outcome in enumerate(outcomes):
            trial = trial_of(PLAN, number)
            end_event = log.ended(3.0, trial.trial_id, Outcome(outcome, "because"))
            ledger.append(
                [log.trial_assigned(1.0, trial), log.started(2.0, trial.trial_id, 1), end_event], lease
            )
        if close_reason:
            ledger.append([log.closed(4.0, close_reason)], lease)
        ledger.release(lease)
    if not keep_folder:
        shutil.rmtree(folder.root)
    return folder


@contextmanager
def hold_lease(folder, holder=None):
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        lease = ledger.claim(holder or Holder.current())
        yield
        ledger.release(lease)


def list_sweeps(haltsweep, *options):
    result = haltsweep("list", "--json", *options)
    assert (result.code, result.err) == (0, "")
    return {row["name"]: row for row in json.loads(result.out)}


FINISHED, CRASHED = OutcomeKind.FINISHED, OutcomeKind.CRASHED


def test_empty_or_missing_folder_lists_no_sweeps(haltsweep, tmp_path):
    for _ in range(2):
        result = haltsweep("list")
        assert (result.code, result.out) == (0, "no sweeps in runs; `haltsweep launch SPEC` starts one\n")
        (tmp_path / "runs").mkdir(exist_ok=True)


def test_list_shows_every_state(haltsweep, tmp_path):
    create_sweep(tmp_path, "all-done", *[FINISHED] * 3, CRASHED)
    create_sweep(tmp_path, "all-failed", *[CRASHED] * 4)
    create_sweep(tmp_path, "begun", FINISHED)
    busy_folder = create_sweep(tmp_path, "busy", FINISHED, CRASHED)
    with hold_lease(busy_folder):
        rows = list_sweeps(haltsweep)
        output = haltsweep("list").out
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        "all-done": "finished",
        "all-failed": "failed",
        "begun": "unfinished",
        "busy": "running",
    }
    assert [rows["busy"][key] for key in ("arms", "ended", "planned", "failed")] == [2, 2, 4, 1]
    assert rows["begun"]["heard_at"] == 3.0
    assert rows["busy"]["heard_at"] > 1e9
    assert "which arm is best?" in output
    assert [line.split("│")[1].strip() for line in output.splitlines() if "which" in line] == sorted(states)


def test_expired_lease_of_another_machine_does_not_count_as_running(haltsweep, tmp_path):
    folder = create_sweep(tmp_path, "orphan", FINISHED)
    with Ledger.open(folder.ledger_url, "orphan", clock=lambda: 0.0) as ledger:
        ledger.claim(DEAD)
    assert list_sweeps(haltsweep)["orphan"]["state"] == "unfinished"


def test_sweep_without_a_ledger_is_unfinished(haltsweep, tmp_path):
    folder = create_sweep(tmp_path, "early")
    folder.ledger.unlink()
    row = list_sweeps(haltsweep)["early"]
    assert (row["state"], row["ended"], row["heard_at"]) == ("unfinished", 0, None)
    assert not folder.ledger.exists()
    folder.ledger.touch()  # as after a kill during its creation
    assert list_sweeps(haltsweep)["early"] == row
    result = haltsweep("status", "early")
    assert result.code == 1
    assert "ledger.db" in result.err


def test_damaged_or_foreign_folders_hide_no_other_sweep(haltsweep, tmp_path):
    runs = tmp_path / "runs"
    for name in ("no-plan", "bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "renamed"):
        create_sweep(tmp_path, name, FINISHED)
    create_sweep(tmp_path, "sound", FINISHED)
    (runs / "no-plan" / "plan.json").unlink()
    (runs / "bad-plan" / "plan.json").write_bytes(b"\xff\x00[")
    (runs / "bad-setup" / "launch.json").write_text("[]")
    (runs / "bad-ledger" / "ledger.db").write_bytes(b"\x1b[31mno database" * 500)
    (runs / "lost-ledger" / "ledger.db").unlink()
    (runs / "lost-ledger" / "checkpoints").mkdir()
    (runs / "renamed").rename(runs / "other")
    (runs / "holidays").mkdir()
    (runs / "holidays" / "photo.jpg").write_text("")
    (runs / "a-file").write_text("")
    (runs / ".hidden").mkdir()
    (runs / "dangling").symlink_to("nowhere")
    (runs / "round").symlink_to("round")
    os.mkfifo(runs / "a-pipe")
    (runs / "full-of-pipes").mkdir()
    for name in ("spec.yaml", "plan.json", "launch.json", "ledger.db"):
        os.mkfifo(runs / "full-of-pipes" / name)
    rows = list_sweeps(haltsweep)
    states = {name: row["state"] for name, row in rows.items()}
    damaged = {"no-plan", "bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "other", "full-of-pipes"}
    assert states == {**dict.fromkeys(damaged, "damaged"), "sound": "unfinished"}
    assert all(rows[name]["why"] for name in damaged)
    assert "plan.json" in rows["full-of-pipes"]["why"]
    result = haltsweep("list")
    assert result.code == 0
    assert "damaged: other: " in result.out
    assert "\x1b" not in result.out


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
    "command",
    [
        ("list",),
        ("status", "piped"),
        ("report", "piped"),
        ("sync", "piped"),
        ("logs", "piped"),
        ("stop", "piped"),
        ("verify", "piped"),
        ("resume", "piped", "--driver", "inline"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_names_a_pipe_in_place_of_the_ledger(haltsweep, tmp_path, command):
    folder = create_sweep(tmp_path, "piped")
    folder.ledger.unlink()
    os.mkfifo(folder.ledger)
    result = haltsweep(*command)
    output = result.out + result.err
    assert str(folder.ledger) in output
    assert "disk" not in output
    assert result.code == (0 if command == ("list",) else 1)


@pytest.mark.parametrize(("path", "kind"), [("/dev/null", "a device"), ("/", "a folder")])
def test_list_names_the_kind_of_a_database_that_is_no_file(haltsweep, path, kind):
    result = haltsweep("list", "--storage", f"sqlite:///{path}")
    assert result.code == 1
    assert result.err.startswith(
        f"the ledger {path} must be a file, and is {kind}; restore a backup of it, or "
    )
