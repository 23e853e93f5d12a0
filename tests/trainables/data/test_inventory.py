"""The inventory classifies everything in a data folder, and deletes only useless data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracles.solvers.listops_solver import SMALL
from tests.trainables.data.test_store import DAMAGES
from trainables import catalog, task_catalog
from trainables.data import inventory, store
from trainables.data.inventory import DataFile, inspect
from trainables.data.progress import Watcher, watched_by
from trainables.data.store import open_split, split_path
from trainables.locks import locked
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
    entries = {each.path.stem: each for each in inspect(tmp_path)}
    assert set(entries) == {"valid", "near-iid"}
    assert {each.verdict for each in entries.values()} == {"whole"}
    assert entries["valid"].content_hash == open_split(CONFIG, "valid", tmp_path).content_hash
    assert entries["valid"].size == valid.stat().st_size


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_split_is_found_and_can_be_removed(
    damage: Callable[[Path], None], valid: Path, tmp_path: Path
) -> None:
    damage(valid)
    (entry,) = inspect(tmp_path)
    assert (entry.path, entry.verdict, entry.reason == "") == (valid, "damaged", False)
    entry.remove()
    assert {path.name for path in valid.parent.iterdir()} == {"valid.lock"}


def test_seal_of_another_folder_is_damage(valid: Path, tmp_path: Path) -> None:
    """The data of a renamed folder would be used for other settings."""
    other = valid.parent.with_name("0" * 20)
    valid.parent.rename(other)
    (entry,) = inspect(tmp_path)
    assert (entry.verdict, entry.reason) == (
        "damaged",
        "its seal is that of other settings than its folder's",
    )


def test_files_of_an_aborted_build_are_unsealed(valid: Path, tmp_path: Path) -> None:
    valid.with_suffix(".json").unlink()
    valid.with_name(".valid.arrow.7-abc123.tmp").write_text("half")
    assert verdicts(tmp_path) == {".valid.arrow.7-abc123.tmp": "unsealed", "valid.arrow": "unsealed"}


def test_seal_without_data_is_damage(valid: Path, tmp_path: Path) -> None:
    valid.unlink()
    assert verdicts(tmp_path) == {"valid.json": "damaged"}


def test_split_under_construction_is_not_touched(tmp_path: Path) -> None:
    config = task_catalog.task_config({"name": "flipflop"})
    path = split_path(config, "length-512-ignore-0.8", tmp_path)
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.7-abc123.tmp").write_text("half")
    with locked(path.with_suffix(".lock"), 0.0, print):
        assert set(verdicts(tmp_path).values()) == {"being built"}
    assert set(verdicts(tmp_path).values()) == {"unsealed"}


def test_foreign_files_are_unknown_and_never_deleted(valid: Path, tmp_path: Path) -> None:
    for strange in (tmp_path / "notes.txt", valid.with_name("notes.txt"), tmp_path / "a/b/c/d.arrow"):
        strange.parent.mkdir(parents=True, exist_ok=True)
        strange.write_text("mine")
    entries = {each.path.name: each for each in inspect(tmp_path)}
    assert {name: each.verdict for name, each in entries.items() if name != "valid.arrow"} == {
        "notes.txt": "unknown",
        "a": "unknown",
    }
    with pytest.raises(AssertionError):
        entries["notes.txt"].remove()


def test_published_files_in_the_data_folder_are_one_entry_and_kept(valid: Path, tmp_path: Path) -> None:
    """Specs read published data from folders such as data/aclImdb, whose files may resemble stored splits."""
    strangers = ("train/pos/0_9.txt", "train/pos.json", "train/pos.arrow", "train/x.tmp", "README")
    for name in strangers:
        (tmp_path / "aclImdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "aclImdb" / name).write_text("mine")
    notes_file = valid.parents[1] / "notes.json"
    notes_file.write_text("mine")
    entries = {each.path.name: each for each in inspect(tmp_path)}
    assert set(entries) == {"aclImdb", "notes.json", "valid.arrow"}
    assert entries["aclImdb"] == DataFile(
        tmp_path / "aclImdb", "unknown", "no data set: 5 files", size=4 * len(strangers)
    )
    assert entries["notes.json"].reason == "not where data sets are"
    assert entries["valid.arrow"].verdict == "whole"


def test_data_with_a_missing_source_is_kept(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source may be on a disk that is not mounted."""

    def source(_: object) -> str:
        raise ValueError("folder must hold files")

    monkeypatch.setattr(listops, "source_digest", source, raising=False)
    (entry,) = inspect(tmp_path)
    assert (entry.verdict, entry.reason) == ("unknown", "its source cannot be read: folder must hold files")
    assert entry.verdict not in inventory.REMOVABLE


def another_version(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(listops, "VERSION", listops.VERSION + 1)
    return "made by another version"


def another_format(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(store, "FORMAT", store.FORMAT + 1)
    return "made by another format"


def no_such_task(patch: pytest.MonkeyPatch) -> str:
    known = replace(catalog.CATALOGUES["tasks"], built_in_names=lambda: ("flipflop",))
    patch.setitem(catalog.CATALOGUES, "tasks", known)
    return "its task is gone: no task named 'listops'"


def no_such_split(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(inventory, "splits", lambda _: ())
    return "the task has no split 'valid'"


def other_source(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(listops, "source_digest", lambda _: "other", raising=False)
    return "made by another source"


CHANGES = [another_version, another_format, no_such_task, no_such_split, other_source]


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_no_task_can_read_is_stale(
    change: Callable[[pytest.MonkeyPatch], str], valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = change(monkeypatch)
    (entry,) = inspect(tmp_path)
    assert (entry.verdict, entry.reason.startswith(reason)) == ("stale", True), entry
    entry.remove()
    assert not valid.exists()


def test_data_of_invalid_settings_is_stale(valid: Path, tmp_path: Path) -> None:
    seal = store.read_seal(valid)
    seal["made_from"]["task"]["trees"] = -1
    home = valid.parent.with_name(store.address_digest(seal["made_from"]))
    valid.with_suffix(".json").write_bytes(store.seal_bytes(seal))
    valid.parent.rename(home)
    (entry,) = inspect(tmp_path)
    assert (entry.verdict, entry.reason) == ("stale", "its settings are no longer allowed")


def test_inspection_writes_nothing_and_reports_progress(valid: Path, tmp_path: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with watched_by(Watcher(lambda *each: progress.append(each))):
        (entry,) = inspect(tmp_path)
    assert entry == DataFile(valid, "whole", "", entry.content_hash, entry.size)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert progress
    assert all(unit == "bytes" and 0 <= done <= total for unit, done, total in progress)
