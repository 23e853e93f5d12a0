"""What is cleared away: own folders of dead processes, and nothing that merely bears such a name."""

import os
import socket

import pytest

from orchestrator.abandoned import clear_folders, own_file, own_folder

DEAD = 999_999_99
PREFIX = "haltsweep-ray-"


def test_folders_of_dead_processes_are_removed(tmp_path):
    for name in (f"{PREFIX}{DEAD}-abc", f"{PREFIX}{DEAD}", f"{PREFIX}{os.getpid()}-abc", f"x{PREFIX}{DEAD}"):
        (tmp_path / name / "below").mkdir(parents=True)
    clear_folders(tmp_path, PREFIX)
    assert {each.name for each in tmp_path.iterdir()} == {f"{PREFIX}{os.getpid()}-abc", f"x{PREFIX}{DEAD}"}


@pytest.mark.parametrize("rest", ["", "-", "x", "-5", "0x10", "²", "٣", "9" * 400, "1 2", "1e3"])
def test_names_that_are_no_process_stop_nobody(tmp_path, rest):
    (tmp_path / f"{PREFIX}{rest[:200]}").mkdir()
    clear_folders(tmp_path, PREFIX)
    assert len(list(tmp_path.iterdir())) == 1


def test_links_files_pipes_and_sockets_are_left(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (tmp_path / f"{PREFIX}{DEAD}-link").symlink_to(precious)
    (tmp_path / f"{PREFIX}{DEAD}-dangling").symlink_to("nowhere")
    (tmp_path / f"{PREFIX}{DEAD}-round").symlink_to(f"{PREFIX}{DEAD}-round")
    (tmp_path / f"{PREFIX}{DEAD}-file").write_text("")
    os.mkfifo(tmp_path / f"{PREFIX}{DEAD}-pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / f"{PREFIX}{DEAD}-s"))
        before = sorted(os.listdir(tmp_path))  # noqa: PTH208 - names
        clear_folders(tmp_path, PREFIX)
    assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208
    assert (precious / "below").is_dir()


def test_a_folder_that_holds_links_goes_without_what_they_lead_to(tmp_path):
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    left = tmp_path / f"{PREFIX}{DEAD}-x"
    left.mkdir()
    (left / "link").symlink_to(precious)
    clear_folders(tmp_path, PREFIX)
    assert not left.exists()
    assert (precious / "below").is_dir()


def test_folders_of_others_are_left(tmp_path, monkeypatch):
    (tmp_path / f"{PREFIX}{DEAD}-x").mkdir()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    clear_folders(tmp_path, PREFIX)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_looked_into_stops_nobody(tmp_path):
    clear_folders(tmp_path / "nowhere", PREFIX)
    (tmp_path / "file").write_text("")
    clear_folders(tmp_path / "file", PREFIX)
    (tmp_path / f"{PREFIX}{DEAD}-x" / "below").mkdir(parents=True)
    (tmp_path / f"{PREFIX}{DEAD}-x").chmod(0)
    clear_folders(tmp_path, PREFIX)
    assert (tmp_path / "file").read_text() == ""
    assert not (tmp_path / "nowhere").exists()
    for left in tmp_path.glob(f"{PREFIX}*"):
        left.chmod(0o700)


def test_what_is_a_file_or_a_folder_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-folder").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    files = {each.name for each in tmp_path.iterdir() if own_file(each)}
    folders = {each.name for each in tmp_path.iterdir() if own_folder(each)}
    assert (files, folders) == ({"file"}, {"folder"})
    assert not own_file(tmp_path / "none")
    assert not own_folder(tmp_path / "none")
