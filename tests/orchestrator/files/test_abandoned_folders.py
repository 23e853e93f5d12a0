"""Cleaning removes folders of dead processes, and nothing else under a similar name."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.files import abandoned_folders as abandoned
from orchestrator.files.abandoned_folders import clear_folders, is_own_file, is_own_folder
from trainables.process_identity import origin, process_label

DEAD_LABEL = f"99999999-{origin()}aa"
"""Label of a dead process on this machine."""
FOREIGN_LABEL = "99999999-abcdefg"
"""Label of a process in another container or on another machine."""
REUSED_LABEL = f"{os.getpid()}-{origin()}{'aa' if not process_label().endswith('aa') else 'bb'}"
"""Label of a dead process whose pid this process has."""


def names(folder):
    return sorted(os.listdir(folder))  # noqa: PTH208


@pytest.mark.parametrize(
    "name", [f"{DEAD_LABEL}-abc", DEAD_LABEL, f"{REUSED_LABEL}-x"], ids=["with a name", "label", "same pid"]
)
def test_folder_of_a_dead_process_is_removed_without_the_targets_of_its_links(tmp_path, name):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    leftover = tmp_path / f"{abandoned.RAY}{name}"
    (leftover / "below").mkdir(parents=True)
    (leftover / "link").symlink_to(precious)
    clear_folders(tmp_path, abandoned.RAY)
    assert names(tmp_path) == ["precious"]
    assert (precious / "below").is_dir()


@pytest.mark.parametrize(
    "name",
    [
        f"x{abandoned.RAY}{DEAD_LABEL}",
        f"{abandoned.RAY}{process_label()}-abc",
        *(f"{abandoned.RAY}{label}" for label in ("", "-", "x", "-5", "0x10", "\u00b2", "9" * 200, "1 2")),
    ],
    ids=range(10),
)
def test_folder_of_no_dead_process_remains(tmp_path, name):
    (tmp_path / name).mkdir()
    clear_folders(tmp_path, abandoned.RAY)
    assert names(tmp_path) == [name]


def test_folders_of_foreign_processes_remain_until_they_are_old(tmp_path):
    old_time = time.time() - abandoned.SILENCE_S - 60
    for name in ("new", "old", "busy"):
        (tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-{name}" / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-busy" / "below" / "log").write_text("")
    for name in ("old", "old/below", "busy/below", "busy"):
        os.utime(tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-{name}", (old_time, old_time))
    clear_folders(tmp_path, abandoned.RAY)
    assert {name.rpartition("-")[2] for name in names(tmp_path)} == {"new", "busy"}


def test_links_files_and_pipes_remain_and_are_no_own_files_or_folders(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    begin = f"{abandoned.RAY}{DEAD_LABEL}"
    for name, target in {
        "file": "file",
        "folder": "folder",
        "missing": "none",
        "round": f"{begin}-round",
    }.items():
        (tmp_path / f"{begin}-{name}").symlink_to(target)
    (tmp_path / f"{begin}-text").write_text("")
    os.mkfifo(tmp_path / f"{begin}-pipe")
    earlier_names = names(tmp_path)
    clear_folders(tmp_path, abandoned.RAY)
    assert names(tmp_path) == earlier_names
    assert [path.name for path in tmp_path.iterdir() if is_own_folder(path)] == ["folder"]
    assert {path.name for path in tmp_path.iterdir() if is_own_file(path)} == {"file", f"{begin}-text"}
    assert not is_own_file(tmp_path / "none")
    assert not is_own_folder(tmp_path / "none")


def test_folders_of_other_users_remain(tmp_path, monkeypatch):
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-x").mkdir()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    clear_folders(tmp_path, abandoned.RAY)
    assert len(names(tmp_path)) == 1


def test_path_that_is_no_folder_causes_no_error(tmp_path):
    clear_folders(tmp_path / "missing", abandoned.RAY)
    (tmp_path / "file").write_text("")
    clear_folders(tmp_path / "file", abandoned.RAY)
    assert names(tmp_path) == ["file"]


def test_leftovers_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(abandoned, "SHORT", len(str(tmp_path)))
    for prefix in (abandoned.RAY, abandoned.CHECKPOINTS):
        for label in (DEAD_LABEL, process_label()):
            (tmp_path / f"{prefix}{label}-abc" / "below").mkdir(parents=True)
    abandoned.clear_abandoned()
    expected = [f"{prefix}{process_label()}-abc" for prefix in (abandoned.RAY, abandoned.CHECKPOINTS)]
    assert names(tmp_path) == sorted(expected)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("/tmp/abcd", "/tmp/abcd"), ("/tmp/slurm.123", "/tmp"), ("/tmp/\u00e4123", "/tmp")],
)
def test_temporary_folder_is_short_enough_for_sockets_of_ray(folder, expected, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", folder)
    assert abandoned.short_folder() == Path(expected)
    pid = "1234567"
    session = f"session_2026-11-22_04-55-00_172740_{pid}"
    socket = f"{abandoned.RAY}{pid}-{origin()}aa-abcdefgh/0/{session}/sockets/plasma_store"
    assert len(bytes(abandoned.short_folder() / socket)) <= 107
