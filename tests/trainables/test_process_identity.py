"""The owner of a resource is a process that is alive, dead or of unknown state."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainables import process_identity
from trainables.process_identity import (
    ProcessState,
    boot_id,
    process_label,
    process_start,
    state_of_label,
    this_process,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_current_process_is_alive() -> None:
    assert this_process().state() is ProcessState.ALIVE
    assert state_of_label(f"{process_label()}-abc") is ProcessState.ALIVE


def test_zombie_process_is_dead(child: subprocess.Popen[bytes]) -> None:
    started_at = process_start(child.pid)
    assert started_at is not None
    owner = replace(this_process(), pid=child.pid, process_started_at=started_at)
    assert owner.state() is ProcessState.ALIVE
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.state() is ProcessState.DEAD


def test_process_with_a_reused_id_is_another_process() -> None:
    assert replace(this_process(), process_started_at=1.0).state() is ProcessState.DEAD


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"boot_id": "another boot"}])
def test_process_of_another_machine_or_container_is_unknown(change: dict[str, str]) -> None:
    assert replace(this_process(), pid=2**30, **change).state() is ProcessState.UNKNOWN


@pytest.mark.parametrize("text", ["", "12-", "x-abcdefg", "12-abcdefgh"])
def test_malformed_label_has_no_state(text: str) -> None:
    assert state_of_label(text) is None


def test_state_is_known_without_a_proc_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_identity, "Path", lambda name: tmp_path / "nothing" / str(name).strip("/"))
    assert boot_id().startswith("boot-")
    assert this_process().state() is ProcessState.ALIVE
    assert replace(this_process(), pid=2**30).state() is ProcessState.DEAD
