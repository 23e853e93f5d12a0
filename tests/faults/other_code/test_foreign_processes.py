"""Processes in other containers, and sessions that wake up after a take-over."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import PATIENCE_S, Shell, answer, tree, wait_for
from tests.support.processes.temporary import short_folder

CONTAINER = (
    *("unshare", "--mount", "--pid", "--fork", "sh", "-c"),
    *('mount -t proc proc /proc && exec "$@"', "sh"),
)
"""Command that runs another command in a namespace of process ids with a private /proc."""

OWNER_CODE = """
import sys, tempfile
from orchestrator.files.abandoned_folders import CHECKPOINTS, RAY, clear_abandoned
from trainables.process_identity import process_label
from trainables.protocol import TRIALS
clear_abandoned()
for prefix in (CHECKPOINTS, RAY, TRIALS):
    print(tempfile.mkdtemp(prefix=f"{prefix}{process_label()}-"), flush=True)
if sys.argv[1] == "wait":
    input()
"""
"""A program that removes leftovers of dead processes, then creates folders as a launch and its trials do."""


@pytest.fixture(scope="module", autouse=True)
def require_containers() -> None:
    """Skip the tests if this user may not create namespaces of process ids."""
    if subprocess.run([*CONTAINER, "true"], check=False).returncode:
        pytest.skip("this user may not make a namespace of process ids")


@contextmanager
def owner_in_container(environment: dict[str, str]) -> Iterator[list[Path]]:
    """Start a living process in a container; yield its folders."""
    command = [*CONTAINER, sys.executable, "-c", OWNER_CODE, "wait"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield [Path(process.stdout.readline().strip()) for _ in range(3)]
        process.communicate("\n", timeout=PATIENCE_S)
        assert process.returncode == 0


def dead_owner(environment: dict[str, str]) -> list[Path]:
    """Return the folders of a process outside of containers that has ended."""
    command = [sys.executable, "-c", OWNER_CODE, "leave"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE_S
    )
    return [Path(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
def test_containers_with_a_shared_temporary_folder_keep_foreign_folders() -> None:
    with short_folder() as temporary:
        environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        with owner_in_container(environment) as first, owner_in_container(environment) as second:
            own_folders = dead_owner(environment)
            assert len({*first, *second, *own_folders}) == 9
            assert all(folder.is_dir() for folder in (*first, *second, *own_folders))
        # All owners are dead now, but a launch can know this only of processes in its container.
        dead_owner(environment)
        assert all(folder.is_dir() for folder in (*first, *second))
        assert not any(folder.exists() for folder in own_folders)


def events(shell: Shell) -> list[Event]:
    """Return all events of the sweep so far."""
    try:
        with Ledger.open(SweepFolder(shell.folder / "runs" / "tiny").ledger_url, "tiny") as ledger:
            return list(ledger.events())
    except StoreError:  # the launch has not created the ledger yet
        return []


def has_started_trial(shell: Shell) -> bool:
    """Return whether a trial of the sweep has started."""
    return any(event.kind is EventKind.STARTED for event in events(shell))


@pytest.mark.slow
def test_session_that_wakes_up_after_a_take_over_writes_nothing(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    with shell.started("launch", "tiny.yaml", "--profile", "short", "--driver", "inline") as suspended:
        wait_for(lambda: has_started_trial(shell), suspended)
        suspended.send_signal(signal.SIGSTOP)
        refused_command = shell.run("resume", "tiny")
        assert refused_command.code == 2
        assert "--take-over" in refused_command.err
        takeover = shell.run("resume", "tiny", "--take-over")
        assert takeover.code == 0, takeover.err
        assert f"session 1, process {suspended.pid} " in " ".join(takeover.err.split())
        assert "trials: 4 finished" in takeover.out
        files_before, earlier_events = tree(shell.folder / "runs"), events(shell)
        suspended.send_signal(signal.SIGCONT)
        woken = answer(suspended)
    assert woken.code == 1
    assert "'tiny'" in " ".join(woken.err.split())
    assert "Traceback" not in woken.err
    assert events(shell) == earlier_events
    files_after = tree(shell.folder / "runs")
    changed = {
        name for name in {*files_before, *files_after} if files_before.get(name) != files_after.get(name)
    }
    # The last process that closes a SQLite database moves the log into it; the events are compared above.
    assert not {name for name in changed if not name.startswith("tiny/ledger.db")}
