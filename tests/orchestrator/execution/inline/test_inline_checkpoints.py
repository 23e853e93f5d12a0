"""Checkpoints on disk: complete or absent, checked before they are trusted."""

import errno
import json
import os
import shutil

import pytest

from orchestrator.cli import sweep_checks
from orchestrator.execution.checkpoints import worker_checkpoints as checkpoints
from orchestrator.execution.checkpoints.worker_checkpoints import (
    CheckpointDamaged,
    clear_unfinished,
    list_checkpoints,
    write,
)
from trainables.protocol import Measurement


def save(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "weights.bin").write_bytes(bytes(range(64)))
    (folder / "position.json").write_text("[1, 2]")


def at(step):
    return Measurement(step, step / 2, {"valid/score": 0.1 + 0.2})


def test_a_checkpoint_gives_back_its_measurement_and_state(tmp_path):
    made = write(tmp_path / "trial", at(5), save)
    assert list_checkpoints(tmp_path / "trial") == [made]
    assert (made.step, made.folder.name) == (5, "step-000000005")
    assert made.measurement() == at(5)
    assert json.loads((made.state / "position.json").read_text()) == [1, 2]


def test_the_newest_two_are_kept_newest_first(tmp_path):
    for step in (9, 10, 100, 1000):
        write(tmp_path, at(step), save, flush=False)
    assert [each.step for each in list_checkpoints(tmp_path)] == [1000, 100]


def test_a_folder_that_is_not_there_holds_none(tmp_path):
    assert list_checkpoints(tmp_path / "nowhere") == []


def test_other_names_are_left_alone(tmp_path):
    (tmp_path / "step-x").mkdir()
    (tmp_path / "notes.txt").touch()
    assert list_checkpoints(tmp_path) == []


DAMAGES = {
    "cut short": lambda folder: (folder / "state/deep/weights.bin").write_bytes(bytes(range(63))),
    "bit flipped": lambda folder: (folder / "state/deep/weights.bin").write_bytes(bytes([1, *range(1, 64)])),
    "file gone": lambda folder: (folder / "state/position.json").unlink(),
    "file added": lambda folder: (folder / "state/other").touch(),
    "no manifest": lambda folder: (folder / "checkpoint.json").unlink(),
    "torn manifest": lambda folder: (folder / "checkpoint.json").write_text('{"measurement": {"st'),
    "empty manifest": lambda folder: (folder / "checkpoint.json").write_text("{}"),
    "odd manifest": lambda folder: (folder / "checkpoint.json").write_text('{"measurement": {"x": 1}}'),
    "manifest changed": lambda folder: (folder / "checkpoint.json").write_text(
        (folder / "checkpoint.json").read_text().replace('"step":5', '"step":7')
    ),
    "state gone": lambda folder: shutil.rmtree(folder / "state"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen(tmp_path, damage):
    made = write(tmp_path, at(5), save)
    DAMAGES[damage](made.folder)
    text = "must be readable" if "manifest" in damage else "must be as written, but these differ: .*[a-z]"
    with pytest.raises(CheckpointDamaged, match=text):
        made.measurement()


def test_a_folder_that_this_user_may_not_look_into_is_not_told_as_files_that_differ(tmp_path, monkeypatch):
    made, scan = write(tmp_path, at(5), save), os.scandir

    def refuse(place):
        if str(place).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CheckpointDamaged, match="must be readable, got PermissionError"):
        made.measurement()
    fault = sweep_checks._checkpoint_fault(made)
    assert (fault.verdict, fault.remedy) == ("unknown", "check as the user whose sweep it is")


def test_a_checkpoint_under_the_name_of_another_step_is_seen(tmp_path):
    made = write(tmp_path, at(5), save)
    made.folder.rename(tmp_path / "step-000000009")
    with pytest.raises(CheckpointDamaged, match="must hold step 9, got 5"):
        list_checkpoints(tmp_path)[0].measurement()


def test_a_failed_write_leaves_the_older_one_and_no_rubbish(tmp_path):
    def full(folder):
        save(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    old = write(tmp_path, at(5), save)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, at(6), full)
    assert [each.name for each in tmp_path.iterdir()] == [old.folder.name]
    assert old.measurement() == at(5)


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    old = write(tmp_path, at(5), save)
    (old.state / "position.json").write_text("damaged")
    assert write(tmp_path, at(5), save).measurement() == at(5)


def test_what_a_killed_worker_left_half_written_is_no_checkpoint_and_goes(tmp_path):
    (tmp_path / f"{checkpoints.UNFINISHED}abc" / "state").mkdir(parents=True)
    assert list_checkpoints(tmp_path) == []
    clear_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_everything_is_flushed_before_the_rename_and_the_folder_after(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(checkpoints, "to_disk", lambda path: order.append(path.name))
    write(tmp_path, at(5), save)
    inside = {"weights.bin", "deep", "position.json", "state", "checkpoint.json"}
    assert inside <= set(order[:-1])
    assert order[-1] == tmp_path.name
