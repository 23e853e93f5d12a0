"""The inventory classifies everything in a data folder, and deletes only useless data."""

from pathlib import Path

import pytest

from tests.oracles.solvers.listops_solver import SMALL
from trainables import task_catalog
from trainables.data import inventory
from trainables.data.inventory import DataFile, inspect
from trainables.data.progress import Watcher, report_to
from trainables.data.store import open_split, split_path
from trainables.locks import hold_lock
from trainables.tasks import listops

CONFIG = task_catalog.task_config(SMALL)


@pytest.fixture(autouse=True)
def clear_cache() -> None:
    inventory._address.cache_clear()


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    open_split(CONFIG, "valid", tmp_path)
    return split_path(CONFIG, "valid", tmp_path)


def verdicts(data_dir: Path) -> dict[str, str]:
    return {entry.path.name: entry.verdict for entry in inspect(data_dir)}


def test_valid_splits_are_listed_with_hash_and_size(valid: Path, tmp_path: Path) -> None:
    open_split(CONFIG, "near-iid", tmp_path)
    entries = {data_file.path.stem: data_file for data_file in inspect(tmp_path)}
    assert set(entries) == {"valid", "near-iid"}
    assert {entry.verdict for entry in entries.values()} == {"whole"}
    assert entries["valid"].content_hash == open_split(CONFIG, "valid", tmp_path).content_hash
    assert entries["valid"].size == valid.stat().st_size


def test_files_of_an_aborted_build_are_unsealed(valid: Path, tmp_path: Path) -> None:
    valid.with_suffix(".json").unlink()
    valid.with_name(".valid.arrow.7-abc123.tmp").write_text("half")
    assert verdicts(tmp_path) == {".valid.arrow.7-abc123.tmp": "unsealed", "valid.arrow": "unsealed"}


def test_split_under_construction_is_not_touched(tmp_path: Path) -> None:
    config = task_catalog.task_config({"name": "flipflop"})
    path = split_path(config, "length-512-ignore-0.8", tmp_path)
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.7-abc123.tmp").write_text("half")
    with hold_lock(path.with_suffix(".lock"), 0.0, print):
        assert set(verdicts(tmp_path).values()) == {"being built"}
    assert set(verdicts(tmp_path).values()) == {"unsealed"}


def test_published_files_in_the_data_folder_are_one_entry_and_kept(valid: Path, tmp_path: Path) -> None:
    """Specs read published data from folders such as data/aclImdb, whose files may resemble stored splits."""
    unknown_files = ("train/pos/0_9.txt", "train/pos.json", "train/pos.arrow", "train/x.tmp", "README")
    for name in unknown_files:
        (tmp_path / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "aclImdb" / name).write_text("mine")
    notes_file = valid.parents[1] / "notes.json"
    notes_file.write_text("mine")
    entries = {data_file.path.name: data_file for data_file in inspect(tmp_path)}
    assert set(entries) == {"aclImdb", "notes.json", "valid.arrow"}
    assert [data_file.verdict for _, data_file in sorted(entries.items())] == ["unknown", "unknown", "whole"]
    assert ("5 files" in entries["aclImdb"].reason, entries["aclImdb"].size) == (True, 4 * len(unknown_files))
    with pytest.raises(AssertionError):
        entries["notes.json"].remove()


def test_inspection_writes_nothing_and_reports_progress(valid: Path, tmp_path: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    times_before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with report_to(Watcher(lambda *data_file: progress.append(data_file))):
        (entry,) = inspect(tmp_path)
    assert entry == DataFile(valid, "whole", "", entry.content_hash, entry.size)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times_before
    assert progress
    assert all(unit == "bytes" and 0 <= num_done <= total for unit, num_done, total in progress)


def test_damaged_split_is_found_and_can_be_removed(valid: Path, tmp_path: Path) -> None:
    valid.write_bytes(valid.read_bytes()[:-100])
    (entry,) = inspect(tmp_path)
    assert (entry.path, entry.verdict, entry.reason == "") == (valid, "damaged", False)
    entry.remove()
    assert {path.name for path in valid.parent.iterdir()} == {"valid.lock"}


@pytest.mark.parametrize(("name", "value"), [("VERSION", 99), ("source_digest", lambda _: "other")])
def test_data_of_another_version_or_source_is_stale(
    name: str, value: object, valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listops, name, value, raising=False)
    (entry,) = inspect(tmp_path)
    assert entry.verdict == "stale"
    entry.remove()
    assert not valid.exists()
