"""Checkpoints on disk are complete or absent, and verified before use."""

import errno
import json

import pytest

from orchestrator.execution.checkpoints import worker_checkpoints as checkpoints
from orchestrator.execution.checkpoints.worker_checkpoints import (
    CheckpointDamaged,
    clear_unfinished,
    list_checkpoints,
    write,
)
from trainables.protocol import Measurement


def write_state(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "weights.bin").write_bytes(bytes(range(64)))
    (folder / "position.json").write_text("[1, 2]")


def measurement_at(step):
    return Measurement(step, step / 2, {"valid/score": 0.1 + 0.2})


def test_checkpoint_returns_its_measurement_and_state(tmp_path):
    checkpoint = write(tmp_path / "trial", measurement_at(5), write_state)
    assert list_checkpoints(tmp_path / "trial") == [checkpoint]
    assert (checkpoint.step, checkpoint.folder.name) == (5, "step-000000005")
    assert checkpoint.measurement() == measurement_at(5)
    assert json.loads((checkpoint.state / "position.json").read_text()) == [1, 2]


def test_newest_two_checkpoints_are_retained_and_listed_newest_first(tmp_path):
    for step in (9, 10, 100, 1000):
        write(tmp_path, measurement_at(step), write_state, flush=False)
    assert [checkpoint.step for checkpoint in list_checkpoints(tmp_path)] == [1000, 100]


DAMAGES = {
    "bit flipped": lambda folder: (folder / "state/deep/weights.bin").write_bytes(bytes([1, *range(1, 64)])),
    "file gone": lambda folder: (folder / "state/position.json").unlink(),
    "file added": lambda folder: (folder / "state/other").touch(),
    "no manifest": lambda folder: (folder / "checkpoint.json").unlink(),
    "odd manifest": lambda folder: (folder / "checkpoint.json").write_text('{"measurement": {"x": 1}}'),
    "manifest changed": lambda folder: (folder / "checkpoint.json").write_text(
        (folder / "checkpoint.json").read_text().replace('"step":5', '"step":7')
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_raises_an_error(tmp_path, damage):
    checkpoint = write(tmp_path, measurement_at(5), write_state)
    DAMAGES[damage](checkpoint.folder)
    with pytest.raises(CheckpointDamaged):
        checkpoint.measurement()


def test_failed_write_keeps_the_older_checkpoint_and_leaves_no_files(tmp_path):
    def fail_with_full_disk(folder):
        write_state(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    old_checkpoint = write(tmp_path, measurement_at(5), write_state)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, measurement_at(6), fail_with_full_disk)
    assert [path.name for path in tmp_path.iterdir()] == [old_checkpoint.folder.name]
    assert old_checkpoint.measurement() == measurement_at(5)


def test_checkpoint_of_the_same_step_is_replaced(tmp_path):
    old_checkpoint = write(tmp_path, measurement_at(5), write_state)
    (old_checkpoint.state / "position.json").write_text("damaged")
    assert write(tmp_path, measurement_at(5), write_state).measurement() == measurement_at(5)


def test_unfinished_checkpoint_of_a_killed_worker_is_hidden_and_deleted(tmp_path):
    (tmp_path / f"{checkpoints.UNFINISHED}abc" / "state").mkdir(parents=True)
    assert list_checkpoints(tmp_path) == []
    clear_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_are_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(checkpoints, "to_disk", lambda path: flushed.append(path.name))
    write(tmp_path, measurement_at(5), write_state)
    expected = {"weights.bin", "deep", "position.json", "state", "checkpoint.json"}
    assert expected <= set(flushed[:-1])
    assert flushed[-1] == tmp_path.name
