"""Commands that read a sweep leave its folder as it is: names, contents, modes and times of all files."""

import hashlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from tests.support.processes.commands import COMMAND, Answer, Shell

READING = [
    ("status", "tiny"),
    ("status", "tiny", "--json"),
    ("list",),
    ("logs", "tiny"),
    ("best", "tiny"),
    ("compare", "tiny", "tiny"),
    ("records", "tiny"),
    ("records", "tiny", "--measurements"),
    ("verify", "tiny"),
    ("bundle", "tiny", "--to", "../tiny.bundle.zip"),
    ("check", "runs/tiny/spec.yaml"),
    ("plan", "runs/tiny/spec.yaml"),
    ("extend", "tiny", "--seeds", "1", "--dry-run"),
]
"""All commands that are no launch and have nothing to write into the folder."""
NOBODY = 65534
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with one sweep that has ended, launched by a shell that lets all others write."""
    made = Shell.at(tmp_path_factory.mktemp("read"))
    launch = (COMMAND, "launch", "tiny.yaml", "--profile", "short", "--driver", "inline", "--shared")
    subprocess.run(launch, cwd=made.folder, env=made.environment, check=True, umask=0, timeout=PATIENCE_S)
    return made


def looked_at(folder: Path) -> Mapping[str, tuple[int, int, str]]:
    """Mode, time of the last change and digest of all files; of folders the mode alone.

    SQLite makes files beside a database while it is read, and deletes them: that changes the folder's time.
    """
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = path.lstat()
        is_file = path.is_file()
        changed_at = state.st_mtime_ns if is_file else 0
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        found[str(path.relative_to(folder))] = (state.st_mode, changed_at, digest)
    return found


def read(shell: Shell, *arguments: str) -> Answer:
    (shell.folder.parent / "tiny.bundle.zip").unlink(missing_ok=True)
    return shell.run(*arguments)


@pytest.mark.slow
def test_a_launch_leaves_nothing_that_all_users_can_write(shell: Shell) -> None:
    found = [each for each in (shell.folder / "runs").rglob("*") if each.lstat().st_mode & 0o002]
    assert not [each for each in found if not each.is_symlink()]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_reads_changes_nothing(arguments: tuple[str, ...], shell: Shell) -> None:
    before = looked_at(shell.folder)
    answer = read(shell, *arguments)
    assert answer.code == 0, answer.err
    assert looked_at(shell.folder) == before


@pytest.fixture
def other_journal(shell: Shell) -> Iterator[Path]:
    """The sweep's ledger without write-ahead logging, as a copy by SQLite's own tools has it."""
    file = SweepFolder(shell.folder / "runs" / "tiny").ledger
    kept = shutil.copy2(file, shell.folder.parent / "ledger.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    yield file
    shutil.copy2(kept, file)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("status", "tiny"), ("verify", "tiny")], ids=" ".join)
def test_the_journal_mode_of_a_ledger_stays(
    arguments: tuple[str, ...], shell: Shell, other_journal: Path
) -> None:
    before = looked_at(shell.folder)
    assert read(shell, *arguments).code == 0
    assert looked_at(shell.folder) == before


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("command", ["status", "verify"])
def test_a_user_who_may_only_read_can_read(command: str, shell: Shell, tmp_path: Path) -> None:
    for parent in (*shell.folder.parents, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-", "read")):
            parent.chmod(0o755)
    runs = tmp_path / "runs"
    shutil.copytree(shell.folder / "runs", runs)
    for path in (tmp_path, runs, *runs.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = looked_at(runs)
    home = tmp_path.parent / f"{tmp_path.name}-home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    arguments = (COMMAND, command, "tiny", "--runs", runs)
    done = subprocess.run(
        arguments,
        cwd=home,
        env={**shell.environment, "HOME": str(home)},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert looked_at(runs) == before
