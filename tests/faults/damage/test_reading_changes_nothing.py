"""Commands that read a sweep leave names, contents, modes and times of all its files unchanged."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.processes.commands import COMMAND, Shell

READING_COMMANDS = [
    ("status", "tiny"),
    ("list",),
    ("logs", "tiny"),
    ("best", "tiny"),
    ("records", "tiny", "--measurements"),
    ("verify", "tiny"),
    ("bundle", "tiny", "--to", "../tiny.bundle.zip"),
    ("extend", "tiny", "--seeds", "1", "--dry-run"),
]
"""Commands that neither launch nor write into the folder."""
NOBODY_USER_ID = 65534
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a folder with one finished sweep, launched with umask 0."""
    finished_shell = Shell.at(tmp_path_factory.mktemp("read"))
    launch = (COMMAND, "launch", "tiny.yaml", "--profile", "short", "--driver", "inline", "--shared")
    subprocess.run(
        launch,
        cwd=finished_shell.folder,
        env=finished_shell.environment,
        check=True,
        umask=0,
        timeout=PATIENCE_S,
    )
    return finished_shell


def folder_state(folder: Path) -> Mapping[str, tuple[int, int, str]]:
    """Return mode, modification time and digest of all files; of folders only the mode. A reader of SQLite
    creates and deletes temporary files, which changes the time of the folder."""
    states = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = path.lstat()
        is_file = path.is_file()
        changed_at = state.st_mtime_ns if is_file else 0
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        states[str(path.relative_to(folder))] = (state.st_mode, changed_at, digest)
    return states


@pytest.mark.slow
def test_launch_creates_no_world_writable_files(shell: Shell) -> None:
    writable_paths = [path for path in (shell.folder / "runs").rglob("*") if path.lstat().st_mode & 0o002]
    assert not [path for path in writable_paths if not path.is_symlink()]


@pytest.mark.slow
def test_reading_commands_change_nothing(shell: Shell) -> None:
    earlier_state = folder_state(shell.folder)
    for arguments in READING_COMMANDS:
        answer = shell.run(*arguments)
        assert answer.code == 0, answer.err
        assert folder_state(shell.folder) == earlier_state, arguments


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_readers_need_no_write_permission(shell: Shell, tmp_path: Path) -> None:
    for parent in (*shell.folder.parents, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-", "read")):
            parent.chmod(0o755)
    runs = tmp_path / "runs"
    shutil.copytree(shell.folder / "runs", runs)
    for path in (tmp_path, runs, *runs.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    earlier_state = folder_state(runs)
    home = tmp_path.parent / f"{tmp_path.name}-home"
    home.mkdir()
    os.chown(home, NOBODY_USER_ID, NOBODY_USER_ID)
    arguments = (COMMAND, "verify", "tiny", "--runs", runs)
    result = subprocess.run(
        arguments,
        cwd=home,
        env={**shell.environment, "HOME": str(home)},
        user=NOBODY_USER_ID,
        group=NOBODY_USER_ID,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert folder_state(runs) == earlier_state
