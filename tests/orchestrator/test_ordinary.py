"""Nothing but files is read: whatever else has their name is told at once."""

import os
from pathlib import Path

import pytest

from orchestrator.ordinary import read_ordinary


def test_files_and_links_to_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_ordinary(tmp_path / "file") == read_ordinary(tmp_path / "link") == b"content"


def test_whatever_else_has_their_name_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    before = set(Path("/proc/self/fd").iterdir())
    for name in ("pipe", "endless", "folder"):
        with pytest.raises(OSError, match=f"{name} must be a file, and is something else"):
            read_ordinary(tmp_path / name)
    assert set(Path("/proc/self/fd").iterdir()) <= before, "what was refused is closed"
    with pytest.raises(FileNotFoundError, match="missing"):
        read_ordinary(tmp_path / "missing")
