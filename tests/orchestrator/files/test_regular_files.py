"""Only regular files are read; other kinds of files cause an error at once."""

import os
import socket
from pathlib import Path

import pytest

from orchestrator.files.regular_files import describe_non_file, read_regular


def test_files_and_links_to_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"content"


def test_other_kinds_of_files_raise_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    open_files = set(Path("/proc/self/fd").iterdir())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name in ("pipe", "endless", "folder"):
        with pytest.raises(OSError, match=f"{name}.*{describe_non_file(tmp_path / name)}"):
            read_regular(tmp_path / name)
    kinds = {describe_non_file(tmp_path / name) for name in ("pipe", "endless", "folder", "socket")}
    assert len(kinds - {""}) == 4
    assert describe_non_file(tmp_path / "missing") == ""
    assert set(Path("/proc/self/fd").iterdir()) <= open_files, "refused files must be closed"
    with pytest.raises(FileNotFoundError, match="missing"):
        read_regular(tmp_path / "missing")
