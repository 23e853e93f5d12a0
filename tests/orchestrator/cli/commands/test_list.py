"""`haltsweep list`: every sweep with its state; nothing that is damaged or foreign hides the others."""

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


def made(tmp_path, name, *outcomes, storage=None, keep_folder=True, closed=None):
    """A sweep of four trials, of which the first have ended."""
    folder = SweepFolder(tmp_path / "runs" / name)
    setup = Setup(tmp_path / "data", storage=storage)
    publish(replace(PLAN, name=name), folder, "", {}, setup)
    with Ledger.open(setup.ledger_url(folder), name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        for number, outcome in enumerate(outcomes):
            trial = trial_of(PLAN, number)
            ended = log.ended(3.0, trial.trial_id, Outcome(outcome, "because"))
            ledger.append([log.asked(1.0, trial), log.started(2.0, trial.trial_id, 1), ended], lease)
        if closed:
            ledger.append([log.closed(4.0, closed)], lease)
        ledger.release(lease)
    if not keep_folder:
        shutil.rmtree(folder.root)
    return folder


@contextmanager
def held(folder, holder=None):
    with Ledger.open(folder.ledger_url, folder.name) as ledger:
        lease = ledger.claim(holder or Holder.current())
        yield
        ledger.release(lease)


def listed(haltsweep, *options):
    result = haltsweep("list", "--json", *options)
    assert (result.code, result.err) == (0, "")
    return {row["name"]: row for row in json.loads(result.out)}


FINISHED, CRASHED = OutcomeKind.FINISHED, OutcomeKind.CRASHED


@pytest.mark.parametrize(
    ("held", "planned", "ended", "failed", "state"),
    [
        (True, 4, 4, 4, SweepState.RUNNING),
        (False, 4, 3, 3, SweepState.UNFINISHED),
        (False, 4, 4, 3, SweepState.FINISHED),
        (False, 4, 4, 4, SweepState.FAILED),
        (False, 0, 0, 0, SweepState.FINISHED),
    ],
)
def test_one_word_says_how_a_sweep_is(held, planned, ended, failed, state):
    assert sweep_state(is_locked=held, num_planned=planned, num_ended=ended, num_failed=failed) is state


def test_an_empty_folder_and_no_folder(haltsweep, tmp_path):
    for _ in range(2):
        result = haltsweep("list")
        assert (result.code, result.out) == (0, "no sweeps in runs; `haltsweep launch SPEC` starts one\n")
        (tmp_path / "runs").mkdir(exist_ok=True)


def test_every_state_is_told(haltsweep, tmp_path):
    made(tmp_path, "all-done", *[FINISHED] * 3, CRASHED)
    made(tmp_path, "all-failed", *[CRASHED] * 4)
    made(tmp_path, "begun", FINISHED)
    busy = made(tmp_path, "busy", FINISHED, CRASHED)
    with held(busy):
        rows = listed(haltsweep)
        shown = haltsweep("list").out
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
    assert "which arm is best?" in shown
    assert [line.split("│")[1].strip() for line in shown.splitlines() if "which" in line] == sorted(states)


def test_a_dead_holder_of_another_machine_runs_nothing_once_its_lease_is_over(haltsweep, tmp_path):
    folder = made(tmp_path, "orphan", FINISHED)
    with Ledger.open(folder.ledger_url, "orphan", clock=lambda: 0.0) as ledger:
        ledger.claim(DEAD)
    assert listed(haltsweep)["orphan"]["state"] == "unfinished"


def test_a_sweep_that_was_killed_before_its_ledger_is_waiting(haltsweep, tmp_path):
    folder = made(tmp_path, "early")
    folder.ledger.unlink()
    row = listed(haltsweep)["early"]
    assert (row["state"], row["ended"], row["heard_at"]) == ("unfinished", 0, None)
    assert not folder.ledger.exists()
    folder.ledger.touch()  # killed while it was made
    assert listed(haltsweep)["early"] == row
    result = haltsweep("status", "early")
    assert result.code == 1
    assert "ledger.db is missing or empty" in result.err


def test_what_is_damaged_or_foreign_never_hides_the_others(haltsweep, tmp_path):
    runs = tmp_path / "runs"
    for name in ("no-plan", "bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "renamed"):
        made(tmp_path, name, FINISHED)
    made(tmp_path, "sound", FINISHED)
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
    rows = listed(haltsweep)
    states = {name: row["state"] for name, row in rows.items()}
    bad = {"no-plan", "bad-plan", "bad-setup", "bad-ledger", "lost-ledger", "other", "full-of-pipes"}
    assert states == {**dict.fromkeys(bad, "damaged"), "sound": "unfinished"}
    assert all(rows[name]["why"] for name in bad)
    assert "plan.json must be a file, and is a pipe" in rows["full-of-pipes"]["why"]
    result = haltsweep("list")
    assert result.code == 0
    assert (
        "damaged: other: the folder must have the name of its sweep, 'renamed'; rename the folder\n"
        in result.out
    )
    assert "\x1b" not in result.out


def test_sweeps_of_a_database_are_listed_wherever_their_folders_are(haltsweep, tmp_path):
    url = f"sqlite:///{tmp_path / 'team.db'}"
    made(tmp_path, "here", FINISHED, storage=url)
    made(tmp_path, "elsewhere", FINISHED, CRASHED, storage=url, keep_folder=False)
    made(tmp_path, "elsewhere-done", FINISHED, storage=url, keep_folder=False, closed="done")
    assert set(listed(haltsweep)) == {"here"}
    rows = listed(haltsweep, "--storage", url)
    assert [(name, row["state"], row["ended"], row["planned"]) for name, row in rows.items()] == [
        ("here", "unfinished", 1, 4),
        ("elsewhere", "unfinished", 2, None),
        ("elsewhere-done", "finished", 1, 1),
    ]


def test_a_database_that_is_not_there_is_refused(haltsweep, tmp_path):
    result = haltsweep("list", "--storage", f"sqlite:///{tmp_path / 'none.db'}")
    assert result.code == 1
    assert result.err == f"the ledger '{tmp_path / 'none.db'}' does not exist\n"


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
def test_a_pipe_in_place_of_the_ledger_is_called_so_by_every_command(haltsweep, tmp_path, command):
    folder = made(tmp_path, "piped")
    folder.ledger.unlink()
    os.mkfifo(folder.ledger)
    result = haltsweep(*command)
    shown = result.out + result.err
    assert f"the ledger {folder.ledger} must be a file, and is a pipe; restore a backup of it" in shown
    assert "disk" not in shown
    assert result.code == (0 if command == ("list",) else 1)


@pytest.mark.parametrize(("place", "kind"), [("/dev/null", "a device"), ("/", "a folder")])
def test_a_database_that_is_no_file_is_not_called_absent(haltsweep, place, kind):
    result = haltsweep("list", "--storage", f"sqlite:///{place}")
    assert result.code == 1
    assert result.err.startswith(
        f"the ledger {place} must be a file, and is {kind}; restore a backup of it, or "
    )


def test_a_launch_into_a_device_is_bad_input():
    with pytest.raises(InputError, match="the ledger /dev/null must be a file, and is a device; "):
        require_answer("sqlite:////dev/null")


def test_listing_changes_nothing(haltsweep, tmp_path):
    folder = made(tmp_path, "quiet", FINISHED)
    before = sorted(path.name for path in folder.root.iterdir())
    listed(haltsweep)
    assert sorted(path.name for path in folder.root.iterdir()) == before
