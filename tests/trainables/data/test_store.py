"""Stored splits are built once, completely or not at all, and storage failures raise clear errors."""

import errno
import logging
import os
import re
import signal
import socket
import threading
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
from trainables.data.progress import Watcher, report_to
from trainables.data.store import DataError, open_split, split_path
from trainables.locks import hold_lock
from trainables.tasks import listops

CONFIG = task_catalog.task_config(SMALL)


@pytest.fixture
def builds(monkeypatch):
    """Names of the built splits, in order."""
    names: list[str] = []
    build_split = listops.build
    monkeypatch.setattr(
        listops, "build", lambda config, split: (names.append(split), build_split(config, split))[1]
    )
    return names


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_requested_split_is_built_once(tmp_path, builds):
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


def test_complete_split_is_read_without_writing(tmp_path, monkeypatch):
    """A team may mount a shared data set read-only."""
    open_split(CONFIG, "valid", tmp_path)
    split_path(CONFIG, "valid", tmp_path).with_suffix(".lock").unlink()
    content_before = file_names(split_path(CONFIG, "valid", tmp_path).parent)
    monkeypatch.setattr(store, "hold_lock", None)
    open_split(CONFIG, "valid", tmp_path)
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == content_before


def flip_bit(path: Path, at: int) -> None:
    """Flip a bit of a file without changing its modification time."""
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from([".arrow", ".json"]))
def test_flipped_bit_never_changes_the_opened_split(data, suffix, tmp_path):
    """For any flipped bit, the opened split equals the original, rebuilt if necessary."""
    original = open_split(CONFIG, "valid", tmp_path)
    expected = original.content_hash, original.batch(np.arange(len(original))).tokens
    file = split_path(CONFIG, "valid", tmp_path).with_suffix(suffix)
    content_before = file.read_bytes()
    flip_bit(file, data.draw(st.integers(0, 8 * len(content_before) - 1)))
    if suffix == ".arrow":
        table, fault = store.open_sealed(file)
        assert table is None
        assert fault.startswith("digest ")
    reopened = open_split(CONFIG, "valid", tmp_path)
    assert reopened.content_hash == expected[0]
    assert reopened.verify()
    assert reopened.batch(np.arange(len(reopened))).tokens.equal(expected[1])


def test_full_disk_raises_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    def raise_disk_full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raise_disk_full)
        with pytest.raises(DataError):
            open_split(CONFIG, "valid", tmp_path)
    assert file_names(split_path(CONFIG, "valid", tmp_path).parent) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


def test_impossible_data_folder_raises_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--data"):
        open_split(CONFIG, "valid", tmp_path / "file")


def test_source_that_changes_during_the_build_is_refused(tmp_path, monkeypatch):
    """The data read may be a mixture of old and new files."""
    contents = iter(("old", "new", "new", "new", "new"))
    monkeypatch.setattr(listops, "source_digest", lambda _: next(contents), raising=False)
    with pytest.raises(ValueError, match="listops"):
        open_split(CONFIG, "valid", tmp_path)
    (folder,) = (tmp_path / "listops").iterdir()
    assert file_names(folder) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


@pytest.mark.slow
def test_concurrent_processes_build_one_valid_copy(tmp_path):
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


@pytest.mark.slow
def test_files_of_a_killed_builder_are_not_used(tmp_path, builds):
    """The builder is killed while it writes the seal; its lock ends with it."""
    builder = Forked(open_valid, tmp_path, 3)
    builder.communicate()
    assert builder.returncode == -signal.SIGKILL
    assert open_split(CONFIG, "valid", tmp_path).verify()
    assert builds == ["valid"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("valid.arrow", b""), ("valid.arrow", None), ("valid.json", b'{"bytes": 3'), ("valid.json", b"[]")],
    ids=["empty", "missing", "half a seal", "no seal"],
)
def test_damaged_split_is_built_again(name, content, tmp_path, builds, caplog):
    content_hash = open_split(CONFIG, "valid", tmp_path).content_hash
    file = split_path(CONFIG, "valid", tmp_path).with_name(name)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        rebuilt = open_split(CONFIG, "valid", tmp_path)
    assert caplog.text.count(str(split_path(CONFIG, "valid", tmp_path))) == (content is not None)
    assert builds == ["valid", "valid"]
    assert rebuilt.content_hash == content_hash
    assert rebuilt.verify()


def test_waiting_process_reports_the_builder(tmp_path, monkeypatch):
    """The process builds if the other one fails."""
    monkeypatch.setattr(store, "SILENT_WAIT_S", 0.1)
    path = split_path(CONFIG, "valid", tmp_path)
    path.parent.mkdir(parents=True)
    has_reported, messages = threading.Event(), list[str]()

    def open_watched() -> None:
        with report_to(Watcher(on_wait=lambda text: (messages.append(text), has_reported.set()))):
            open_split(CONFIG, "valid", tmp_path)

    with hold_lock(path.with_suffix(".lock"), 0.0, print):
        waiting = threading.Thread(target=open_watched)
        waiting.start()
        assert has_reported.wait(60)
        assert not path.exists()
    waiting.join()
    (message,) = messages
    assert re.search(f"process {os.getpid()} on {socket.gethostname()}.*{path}", message)
    assert open_split(CONFIG, "valid", tmp_path).verify()
