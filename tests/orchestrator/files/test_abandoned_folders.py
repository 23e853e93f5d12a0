"""What is cleared away: own folders of dead processes, and nothing that merely bears such a name."""

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from orchestrator.files import abandoned_folders as abandoned
from orchestrator.files.abandoned_folders import clear_folders, is_own_file, is_own_folder
from trainables.process_identity import origin, process_label

DEAD = f"99999999-{origin()}aa"
"""Label of a process of this machine that is no more."""
ELSEWHERE = "99999999-abcdefg"
"""Label of a process of another container or machine."""


def test_folders_of_dead_processes_are_removed(tmp_path):
    for name in (
        f"{abandoned.RAY}{DEAD}-abc",
        f"{abandoned.RAY}{DEAD}",
        f"{abandoned.RAY}{process_label()}-abc",
        f"x{abandoned.RAY}{DEAD}",
    ):
        (tmp_path / name / "below").mkdir(parents=True)
    clear_folders(tmp_path, abandoned.RAY)
    assert {each.name for each in tmp_path.iterdir()} == {
        f"{abandoned.RAY}{process_label()}-abc",
        f"x{abandoned.RAY}{DEAD}",
    }


def test_folders_of_processes_elsewhere_are_left_until_nothing_in_them_changes(tmp_path):
    then = time.time() - abandoned.SILENCE_S - 60
    for name in ("new", "old", "busy"):
        (tmp_path / f"{abandoned.RAY}{ELSEWHERE}-{name}" / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{ELSEWHERE}-busy" / "below" / "log").write_text("")
    for name in ("old", "old/below", "busy/below", "busy"):
        os.utime(tmp_path / f"{abandoned.RAY}{ELSEWHERE}-{name}", (then, then))
    clear_folders(tmp_path, abandoned.RAY)
    left = {each.name.rpartition("-")[2] for each in tmp_path.iterdir()}
    assert left == {"new", "busy"}


def test_the_folder_of_a_process_that_has_this_pid_no_more_is_removed(tmp_path):
    reused = f"{os.getpid()}-{origin()}"
    other = "aa" if not process_label().endswith("aa") else "bb"
    (tmp_path / f"{abandoned.RAY}{reused}{other}-x").mkdir()
    clear_folders(tmp_path, abandoned.RAY)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rest", ["", "-", "x", "-5", "0x10", "²", "٣", "9" * 400, "1 2", "1e3"])
def test_names_that_are_no_process_stop_nobody(tmp_path, rest):
    (tmp_path / f"{abandoned.RAY}{rest[:200]}").mkdir()
    clear_folders(tmp_path, abandoned.RAY)
    assert len(list(tmp_path.iterdir())) == 1


def test_links_files_pipes_and_sockets_are_left(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{DEAD}-link").symlink_to(precious)
    (tmp_path / f"{abandoned.RAY}{DEAD}-dangling").symlink_to("nowhere")
    (tmp_path / f"{abandoned.RAY}{DEAD}-round").symlink_to(f"{abandoned.RAY}{DEAD}-round")
    (tmp_path / f"{abandoned.RAY}{DEAD}-file").write_text("")
    os.mkfifo(tmp_path / f"{abandoned.RAY}{DEAD}-pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / f"{abandoned.RAY}{DEAD}-s"))
        before = sorted(os.listdir(tmp_path))  # noqa: PTH208 - names
        clear_folders(tmp_path, abandoned.RAY)
    assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208
    assert (precious / "below").is_dir()


def test_a_folder_that_holds_links_goes_without_what_they_lead_to(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    left = tmp_path / f"{abandoned.RAY}{DEAD}-x"
    left.mkdir()
    (left / "link").symlink_to(precious)
    clear_folders(tmp_path, abandoned.RAY)
    assert not left.exists()
    assert (precious / "below").is_dir()


def test_folders_of_others_are_left(tmp_path, monkeypatch):
    (tmp_path / f"{abandoned.RAY}{DEAD}-x").mkdir()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    clear_folders(tmp_path, abandoned.RAY)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_looked_into_stops_nobody(tmp_path):
    clear_folders(tmp_path / "nowhere", abandoned.RAY)
    (tmp_path / "file").write_text("")
    clear_folders(tmp_path / "file", abandoned.RAY)
    (tmp_path / f"{abandoned.RAY}{DEAD}-x" / "below").mkdir(parents=True)
    (tmp_path / f"{abandoned.RAY}{DEAD}-x").chmod(0)
    clear_folders(tmp_path, abandoned.RAY)
    assert (tmp_path / "file").read_text() == ""
    assert not (tmp_path / "nowhere").exists()
    for left in tmp_path.glob(f"{abandoned.RAY}*"):
        left.chmod(0o700)


def test_what_is_a_file_or_a_folder_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    files = {each.name for each in tmp_path.iterdir() if is_own_file(each)}
    folders = {each.name for each in tmp_path.iterdir() if is_own_folder(each)}
    assert (files, folders) == ({"file"}, {"folder"})
    assert not is_own_file(tmp_path / "none")
    assert not is_own_folder(tmp_path / "none")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_killed_ones_left_is_cleared_away(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "SHORT", len(str(temporary)))
    for prefix in (abandoned.RAY, abandoned.CHECKPOINTS):
        for label in (DEAD, process_label()):
            (temporary / f"{prefix}{label}-abc" / "below").mkdir(parents=True)
    abandoned.clear_abandoned()
    kept = {f"{prefix}{process_label()}-abc" for prefix in (abandoned.RAY, abandoned.CHECKPOINTS)}
    assert {each.name for each in temporary.iterdir()} == kept


@pytest.mark.parametrize(
    ("folder", "used"), [("/tmp/abcd", "/tmp/abcd"), ("/tmp/slurm.123", "/tmp"), ("/tmp/ä123", "/tmp")]
)
def test_sockets_of_ray_have_room(folder: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", folder)
    assert abandoned.short_folder() == Path(used)
    pid = "1234567"
    session = f"session_2026-11-22_04-55-00_172740_{pid}"
    socket = f"{abandoned.RAY}{pid}-{origin()}aa-abcdefgh/0/{session}/sockets/plasma_store"
    assert len(bytes(abandoned.short_folder() / socket)) <= 107
