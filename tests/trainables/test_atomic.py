"""Files are written completely or not at all, and private files are never readable by other users."""

import os
import stat
from pathlib import Path

import pytest

from trainables import atomic
from trainables.atomic import PRIVATE, write_atomically


def test_private_file_is_private_from_its_creation(tmp_path: Path, monkeypatch) -> None:
    modes = []
    original_fdopen = os.fdopen

    def record_mode(handle: int, mode: str):
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return original_fdopen(handle, mode)

    monkeypatch.setattr(atomic.os, "fdopen", record_mode)
    umask_before = os.umask(0)
    try:
        write_atomically(tmp_path / "secret", "text é", mode=PRIVATE)
    finally:
        os.umask(umask_before)
    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "text é"


def test_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "file", "\udc80")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]
