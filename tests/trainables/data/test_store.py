"""Splits on disk: built once, whole or not there, and one clear error where the disk refuses."""

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
    """Names of the splits that have been built."""
    made: list[str] = []
    real = listops.build
    monkeypatch.setattr(listops, "build", lambda config, split: (made.append(split), real(config, split))[1])
    return made


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_what_is_asked_for_is_built_and_only_once(tmp_path: Path, builds: list[str]) -> None:
    first = open_split(CONFIG, "train", tmp_path)
    again = open_split(CONFIG, "train", tmp_path)
    assert builds == ["train"]
    assert first.content_hash == again.content_hash
    assert first.verify()
    assert again.verify()
    assert left(split_path(CONFIG, "train", tmp_path).parent) == {"train.arrow", "train.json", "train.lock"}


def test_a_whole_copy_is_read_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set shared by a team is mounted read-only."""
    open_split(CONFIG, "valid", tmp_path)
    split_path(CONFIG, "valid", tmp_path).with_suffix(".lock").unlink()
    before = left(split_path(CONFIG, "valid", tmp_path).parent)
    monkeypatch.setattr(store, "locked", None)
    open_split(CONFIG, "valid", tmp_path)
    assert left(split_path(CONFIG, "valid", tmp_path).parent) == before


def test_settings_and_version_make_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = task_catalog.task_config(SMALL | {"train_length_max": 60})
    places = {split_path(CONFIG, "train", tmp_path), split_path(other, "train", tmp_path)}
    monkeypatch.setattr(listops, "VERSION", listops.VERSION + 1)
    assert len(places | {split_path(CONFIG, "train", tmp_path)}) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_seal(path: Path) -> None:
    seal = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(seal | {"content_hash": "0" * 32}))


def torn_seal(path: Path) -> None:
    path.with_suffix(".json").write_text('{"bytes": 3')


def seal_of_nothing(path: Path) -> None:
    path.with_suffix(".json").write_text("[]")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = [cut, emptied, other_seal, torn_seal, seal_of_nothing, zeros]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_built_again(
    damage: Callable[[Path], None], tmp_path: Path, builds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    whole = open_split(CONFIG, "valid", tmp_path).content_hash
    damage(split_path(CONFIG, "valid", tmp_path))
    with caplog.at_level(logging.WARNING):
        again = open_split(CONFIG, "valid", tmp_path)
    assert caplog.text.count("valid.arrow is damaged (") == 1
    assert "building it again" in caplog.text
    assert builds == ["valid", "valid"]
    assert again.content_hash == whole
    assert again.verify()


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
def test_a_missing_part_is_built_again(suffix: str, tmp_path: Path, builds: list[str]) -> None:
    open_split(CONFIG, "valid", tmp_path)
    split_path(CONFIG, "valid", tmp_path).with_suffix(suffix).unlink()
    open_split(CONFIG, "valid", tmp_path)
    assert builds == ["valid", "valid"]


def flipped(path: Path, at: int) -> None:
    """One bit of a file is another, and its time of modification the same."""
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from([".arrow", ".json"]))
def test_no_flipped_bit_is_trained_on(data: st.DataObject, suffix: str, tmp_path: Path) -> None:
    """Whatever bit: the split is what was built, be it built again."""
    whole = open_split(CONFIG, "valid", tmp_path)
    sound = whole.content_hash, whole.batch(np.arange(len(whole))).tokens
    file = split_path(CONFIG, "valid", tmp_path).with_suffix(suffix)
    before = file.read_bytes()
    flipped(file, data.draw(st.integers(0, 8 * len(before) - 1)))
    if suffix == ".arrow":
        table, fault = store.open_sealed(file)
        assert table is None
        assert fault.startswith("digest must be ")
    again = open_split(CONFIG, "valid", tmp_path)
    assert again.content_hash == sound[0]
    assert again.verify()
    assert again.batch(np.arange(len(again))).tokens.equal(sound[1])


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="free space"):
            open_split(CONFIG, "valid", tmp_path)
    assert left(split_path(CONFIG, "valid", tmp_path).parent) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


def test_a_data_dir_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--data"):
        open_split(CONFIG, "valid", tmp_path / "file")


def test_a_source_that_cannot_be_read_is_no_fault_of_the_data_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "originals")

    monkeypatch.setattr(listops, "build", refused)
    with pytest.raises(ValueError, match="files that listops reads"):
        open_split(CONFIG, "valid", tmp_path)


def test_a_source_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be neither the old nor the new files."""
    contents = iter(("old", "new", "new", "new", "new"))
    monkeypatch.setattr(listops, "source_digest", lambda _: next(contents), raising=False)
    with pytest.raises(ValueError, match="that listops reads"):
        open_split(CONFIG, "valid", tmp_path)
    (folder,) = (tmp_path / "listops").iterdir()
    assert left(folder) == {"valid.lock"}
    assert open_split(CONFIG, "valid", tmp_path).verify()


def test_a_split_without_examples_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = listops.build
    monkeypatch.setattr(listops, "build", lambda *given: whole(*given).slice(0, 0))
    with pytest.raises(ValueError, match="the split valid of listops"):
        open_split(CONFIG, "valid", tmp_path)


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"listops has no split 'test'\. Known:"):
        open_split(CONFIG, "test", tmp_path)
    assert left(tmp_path) == set()


def test_many_at_once_end_with_one_copy(tmp_path: Path, builds: list[str]) -> None:
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
def test_two_processes_at_once_end_with_one_good_copy(tmp_path: Path) -> None:
    workers = [Forked(open_valid, tmp_path) for _ in range(2)]
    answers = [worker.communicate()[0].strip() for worker in workers]
    split = open_split(CONFIG, "valid", tmp_path)
    assert answers == [split.content_hash] * 2
    assert split.verify()
    assert left(split_path(CONFIG, "valid", tmp_path).parent) == {"valid.arrow", "valid.json", "valid.lock"}


def test_who_waits_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To whoever watches, else in the log; and builds when the other has gone without a result."""
    monkeypatch.setattr(store, "WAIT_SHOWN_S", 0.1)
    path = split_path(CONFIG, "valid", tmp_path)
    path.parent.mkdir(parents=True)
    for watched in (False, True):
        heard = threading.Event()
        shown: list[str] = []

        def hear(text: str, shown: list[str] = shown, heard: threading.Event = heard) -> None:
            shown.append(text)
            heard.set()

        monkeypatch.setattr(store.LOG, "warning", lambda _, text, hear=hear: hear(text))
        with locked(path.with_suffix(".lock"), 0.0, print):
            waiting = threading.Thread(target=open_watched, args=(tmp_path, hear if watched else None))
            waiting.start()
            assert heard.wait(60)
            assert not path.exists()
        waiting.join()
        assert shown == [f"waiting for process {os.getpid()} on {socket.gethostname()}, which builds {path}"]
        assert open_split(CONFIG, "valid", tmp_path).verify()
        path.unlink()


def open_watched(data_dir: Path, on_wait: Callable[[str], None] | None) -> None:
    with watched_by(Watcher(on_wait=on_wait)) if on_wait else nullcontext():
        open_split(CONFIG, "valid", data_dir)


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_killed_builder_leaves_nothing_that_is_trusted(
    call: int, tmp_path: Path, builds: list[str]
) -> None:
    """Killed while it brings the data, its folder or the seal to the disk; the lock dies with it."""
    builder = Forked(open_valid, tmp_path, call)
    builder.communicate()
    assert builder.returncode == -signal.SIGKILL
    assert open_split(CONFIG, "valid", tmp_path).verify()
    assert builds == ["valid"]
    assert left(split_path(CONFIG, "valid", tmp_path).parent) == {"valid.arrow", "valid.json", "valid.lock"}
