"""Stored splits are built once, completely or not at all, and storage failures raise clear errors."""

import errno
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.oracles.solvers.listops_solver import SMALL
from tests.support.processes.forks import Forked
from tests.support.specs.examples import examples
from tests.support.specs.splits import open_valid
from trainables import task_catalog
from trainables.data import store
from trainables.data.progress import Watcher, watched_by
from trainables.data.store import DataError, open_split, split_path
from trainables.locks import locked
from trainables.tasks import listops

CONFIG = task_catalog.task_config(SMALL)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the built splits, in order."""
    names: list[str] = []
    real = listops.build
    monkeypatch.setattr(listops, "build", lambda config, split: (names.append(split), real(config, split))[1])
    return names


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_requested_split_is_built_once(tmp_path: Path, builds: list[str]) -> None:
    first = open_split(CONFIG, "train", tmp_path)
    reopened = open_split(CONFIG, "train", tmp_path)
    assert builds == ["train"]
    assert first.content_hash == reopened.content_hash
    assert first.verify()
    assert reopened.verify()
    assert file_names(split_path(CONFIG, "train", tmp_path).parent) == {
        "train.arrow",
        "train.json",
        "train.lock",
    }


def test_complete_split_is_read_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team may mount a shared data set read-only."""
    open_split(CONFIG, "valid", tmp_path)
    split_path(CONFIG, "valid", tmp_path).with_suffix(".lock").unlink()
    before = file_names(split_path(CONFIG, "valid", tmp_path).parent)
    monkeypatch.setattr(store, "locked", None)
    open_split(CONFIG, "valid", tmp_path)
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == before


def test_path_depends_on_settings_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_config = task_catalog.task_config(SMALL | {"train_length_max": 60})
    places = {split_path(CONFIG, "train", tmp_path), split_path(other_config, "train", tmp_path)}
    monkeypatch.setattr(listops, "VERSION", listops.VERSION + 1)
    assert len(places | {split_path(CONFIG, "train", tmp_path)}) == 3


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def replace_seal(path: Path) -> None:
    seal = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(seal | {"content_hash": "0" * 32}))


def truncate_seal(path: Path) -> None:
    path.with_suffix(".json").write_text('{"bytes": 3')


def write_empty_seal(path: Path) -> None:
    path.with_suffix(".json").write_text("[]")


def overwrite_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [truncate, empty, replace_seal, truncate_seal, write_empty_seal, overwrite_with_zeros]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_split_is_built_again(
    damage: Callable[[Path], None], tmp_path: Path, builds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    content_hash = open_split(CONFIG, "valid", tmp_path).content_hash
    damage(split_path(CONFIG, "valid", tmp_path))
    with caplog.at_level(logging.WARNING):
        rebuilt = open_split(CONFIG, "valid", tmp_path)
    assert caplog.text.count("valid.arrow is damaged (") == 1
    assert "building it again" in caplog.text
    assert builds == ["valid", "valid"]
    assert rebuilt.content_hash == content_hash
    assert rebuilt.verify()


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
def test_split_with_a_missing_file_is_built_again(suffix: str, tmp_path: Path, builds: list[str]) -> None:
    open_split(CONFIG, "valid", tmp_path)
    split_path(CONFIG, "valid", tmp_path).with_suffix(suffix).unlink()
    open_split(CONFIG, "valid", tmp_path)
    assert builds == ["valid", "valid"]


def flip_bit(path: Path, at: int) -> None:
    """Flip a bit of a file without changing its modification time."""
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from([".arrow", ".json"]))
def test_flipped_bit_never_changes_the_opened_split(data: st.DataObject, suffix: str, tmp_path: Path) -> None:
    """For any flipped bit, the opened split equals the original, rebuilt if necessary."""
    original = open_split(CONFIG, "valid", tmp_path)
    sound = original.content_hash, original.batch(np.arange(len(original))).tokens
    file = split_path(CONFIG, "valid", tmp_path).with_suffix(suffix)
    before = file.read_bytes()
    flip_bit(file, data.draw(st.integers(0, 8 * len(before) - 1)))
    if suffix == ".arrow":
        table, fault = store.open_sealed(file)
        assert table is None
        assert fault.startswith("digest must be ")
    reopened = open_split(CONFIG, "valid", tmp_path)
    assert reopened.content_hash == sound[0]
    assert reopened.verify()
    assert reopened.batch(np.arange(len(reopened))).tokens.equal(sound[1])


def test_full_disk_raises_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raise_disk_full)
        with pytest.raises(DataError):
            open_split(CONFIG, "valid", tmp_path)
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


def test_impossible_data_folder_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--data"):
        open_split(CONFIG, "valid", tmp_path / "file")


def test_unreadable_source_error_does_not_blame_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_permission_error(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "originals")

    monkeypatch.setattr(listops, "build", raise_permission_error)
    with pytest.raises(ValueError, match="listops"):
        open_split(CONFIG, "valid", tmp_path)


def test_source_that_changes_during_the_build_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data read may be a mixture of old and new files."""
    contents = iter(("old", "new", "new", "new", "new"))
    monkeypatch.setattr(listops, "source_digest", lambda _: next(contents), raising=False)
    with pytest.raises(ValueError, match="listops"):
        open_split(CONFIG, "valid", tmp_path)
    (folder,) = (tmp_path / "listops").iterdir()
    assert file_names(folder) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


def test_split_without_examples_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = listops.build
    monkeypatch.setattr(listops, "build", lambda *given: build(*given).slice(0, 0))
    with pytest.raises(ValueError, match="valid of listops"):
        open_split(CONFIG, "valid", tmp_path)


def test_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"listops .*'test'"):
        open_split(CONFIG, "test", tmp_path)
    assert file_names(tmp_path) == set()


def test_concurrent_threads_build_one_copy(tmp_path: Path, builds: list[str]) -> None:
    start = threading.Barrier(4)
    hashes: list[str] = []

    def work() -> None:
        start.wait()
        hashes.append(open_split(CONFIG, "valid", tmp_path).content_hash)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert builds == ["valid"]
    assert len(hashes) == 4
    assert len(set(hashes)) == 1


@pytest.mark.slow
def test_concurrent_processes_build_one_valid_copy(tmp_path: Path) -> None:
    workers = [Forked(open_valid, tmp_path) for _ in range(2)]
    answers = [worker.communicate()[0].strip() for worker in workers]
    split = open_split(CONFIG, "valid", tmp_path)
    assert answers == [split.content_hash] * 2
    assert split.verify()
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == {
        "valid.arrow",
        "valid.json",
        "valid.lock",
    }


def test_waiting_process_reports_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report goes to a listener, else to the log; the process builds if the other one fails."""
    monkeypatch.setattr(store, "WAIT_SHOWN_S", 0.1)
    path = split_path(CONFIG, "valid", tmp_path)
    path.parent.mkdir(parents=True)
    for watched in (False, True):
        heard = threading.Event()
        messages: list[str] = []

        def receive(text: str, messages: list[str] = messages, heard: threading.Event = heard) -> None:
            messages.append(text)
            heard.set()

        monkeypatch.setattr(store.LOG, "warning", lambda _, text, receive=receive: receive(text))
        with locked(path.with_suffix(".lock"), 0.0, print):
            waiting = threading.Thread(target=open_watched, args=(tmp_path, receive if watched else None))
            waiting.start()
            assert heard.wait(60)
            assert not path.exists()
        waiting.join()
        assert messages == [
            f"waiting for process {os.getpid()} on {socket.gethostname()}, which builds {path}"
        ]
        assert open_split(CONFIG, "valid", tmp_path).verify()
        path.unlink()


def open_watched(data_dir: Path, on_wait: Callable[[str], None] | None) -> None:
    with watched_by(Watcher(on_wait=on_wait)) if on_wait else nullcontext():
        open_split(CONFIG, "valid", data_dir)


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2, 3])
def test_files_of_a_killed_builder_are_not_used(call: int, tmp_path: Path, builds: list[str]) -> None:
    """The builder is killed while it writes the data, the folder or the seal; its lock ends with it."""
    builder = Forked(open_valid, tmp_path, call)
    builder.communicate()
    assert builder.returncode == -signal.SIGKILL
    assert open_split(CONFIG, "valid", tmp_path).verify()
    assert builds == ["valid"]
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == {
        "valid.arrow",
        "valid.json",
        "valid.lock",
    }
