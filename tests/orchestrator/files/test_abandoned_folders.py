"""Cleaning removes folders of dead processes, and nothing else under a similar name."""

import os
import socket
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


def test_folders_of_dead_processes_are_removed(tmp_path):
    for name in (
        f"{abandoned.RAY}{DEAD_LABEL}-abc",
        f"{abandoned.RAY}{DEAD_LABEL}",
        f"{abandoned.RAY}{process_label()}-abc",
        f"x{abandoned.RAY}{DEAD_LABEL}",
    ):
        (tmp_path / name / "below").mkdir(parents=True)
    clear_folders(tmp_path, abandoned.RAY)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{abandoned.RAY}{process_label()}-abc",
        f"x{abandoned.RAY}{DEAD_LABEL}",
    }


def test_folders_of_foreign_processes_remain_until_they_are_old(tmp_path):
    old_time = time.time() - abandoned.SILENCE_S - 60
    for name in ("new", "old", "busy"):
        (tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-{name}" / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-busy" / "below" / "log").write_text("")
    for name in ("old", "old/below", "busy/below", "busy"):
        os.utime(tmp_path / f"{abandoned.RAY}{FOREIGN_LABEL}-{name}", (old_time, old_time))
    clear_folders(tmp_path, abandoned.RAY)
    remaining = {path.name.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert remaining == {"new", "busy"}


def test_folder_of_a_dead_process_with_a_reused_pid_is_removed(tmp_path):
    reused_pid = f"{os.getpid()}-{origin()}"
    other_start = "aa" if not process_label().endswith("aa") else "bb"
    (tmp_path / f"{abandoned.RAY}{reused_pid}{other_start}-x").mkdir()
    clear_folders(tmp_path, abandoned.RAY)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("label", ["", "-", "x", "-5", "0x10", "²", "٣", "9" * 400, "1 2", "1e3"])
def test_names_without_a_process_label_are_ignored(tmp_path, label):
    (tmp_path / f"{abandoned.RAY}{label[:200]}").mkdir()
    clear_folders(tmp_path, abandoned.RAY)
    assert len(list(tmp_path.iterdir())) == 1


def test_links_files_pipes_and_sockets_remain(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-link").symlink_to(precious)
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-dangling").symlink_to("missing")
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-round").symlink_to(f"{abandoned.RAY}{DEAD_LABEL}-round")
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-file").write_text("")
    os.mkfifo(tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-s"))
        earlier_names = sorted(os.listdir(tmp_path))  # noqa: PTH208 - names
        clear_folders(tmp_path, abandoned.RAY)
    assert sorted(os.listdir(tmp_path)) == earlier_names  # noqa: PTH208
    assert (precious / "below").is_dir()


def test_folder_with_links_is_removed_without_the_link_targets(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    leftover = tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-x"
    leftover.mkdir()
    (leftover / "link").symlink_to(precious)
    clear_folders(tmp_path, abandoned.RAY)
    assert not leftover.exists()
    assert (precious / "below").is_dir()


def test_folders_of_other_users_remain(tmp_path, monkeypatch):
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-x").mkdir()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    clear_folders(tmp_path, abandoned.RAY)
    assert len(list(tmp_path.iterdir())) == 1


def test_unreadable_folder_causes_no_error(tmp_path):
    clear_folders(tmp_path / "missing", abandoned.RAY)
    (tmp_path / "file").write_text("")
    clear_folders(tmp_path / "file", abandoned.RAY)
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-x" / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{DEAD_LABEL}-x").chmod(0)
    clear_folders(tmp_path, abandoned.RAY)
    assert (tmp_path / "file").read_text() == ""
    assert not (tmp_path / "missing").exists()
    for leftover in tmp_path.glob(f"{abandoned.RAY}*"):
        leftover.chmod(0o700)


def test_links_and_pipes_are_no_own_files_or_folders(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    files = {path.name for path in tmp_path.iterdir() if is_own_file(path)}
    folders = {path.name for path in tmp_path.iterdir() if is_own_folder(path)}
    assert (files, folders) == ({"file"}, {"folder"})
    assert not is_own_file(tmp_path / "none")
    assert not is_own_folder(tmp_path / "none")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_leftovers_of_killed_processes_are_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "SHORT", len(str(temporary)))
    for prefix in (abandoned.RAY, abandoned.CHECKPOINTS):
        for label in (DEAD_LABEL, process_label()):
            (temporary / f"{prefix}{label}-abc" / "below").mkdir(parents=True)
    abandoned.clear_abandoned()
    expected = {f"{prefix}{process_label()}-abc" for prefix in (abandoned.RAY, abandoned.CHECKPOINTS)}
    assert {path.name for path in temporary.iterdir()} == expected


@pytest.mark.parametrize(
    ("folder", "expected"), [("/tmp/abcd", "/tmp/abcd"), ("/tmp/slurm.123", "/tmp"), ("/tmp/ä123", "/tmp")]
)
def test_temporary_folder_is_short_enough_for_sockets_of_ray(
    folder: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", folder)
    assert abandoned.short_folder() == Path(expected)
    pid = "1234567"
    session = f"session_2026-11-22_04-55-00_172740_{pid}"
    socket = f"{abandoned.RAY}{pid}-{origin()}aa-abcdefgh/0/{session}/sockets/plasma_store"
    assert len(bytes(abandoned.short_folder() / socket)) <= 107
