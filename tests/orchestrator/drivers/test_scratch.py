"""Where temporary folders of launches are, and that killed ones leave none."""

import os
import tempfile
from pathlib import Path

import pytest

from orchestrator.drivers import scratch

DEAD = 999_999_99


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_killed_ones_left_is_cleared_away(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "SHORT", len(str(temporary)))
    for prefix in (scratch.RAY, scratch.CHECKPOINTS):
        for pid in (DEAD, os.getpid()):
            (temporary / f"{prefix}{pid}-abc" / "below").mkdir(parents=True)
    scratch.clear_abandoned()
    kept = {f"{prefix}{os.getpid()}-abc" for prefix in (scratch.RAY, scratch.CHECKPOINTS)}
    assert {each.name for each in temporary.iterdir()} == kept


@pytest.mark.parametrize(
    ("folder", "used"), [("/tmp/abcd", "/tmp/abcd"), ("/tmp/slurm.123", "/tmp"), ("/tmp/ä123", "/tmp")]
)
def test_sockets_of_ray_have_room(folder: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", folder)
    assert scratch.short_folder() == Path(used)
    pid = "1234567"
    socket = f"{scratch.RAY}{pid}-abcdefgh/r0/session_2026-11-22_04-55-00_172740_{pid}/sockets/plasma_store"
    assert len(bytes(scratch.short_folder() / socket)) <= 107
