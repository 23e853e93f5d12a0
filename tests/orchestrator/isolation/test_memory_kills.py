"""Counters of the system show whether a process was killed for lack of memory."""

import os
import signal
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.isolation import memory_kills
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded
from tests.support.processes import children
from tests.support.processes.children import order

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT = 256 << 20
PATIENCE_S = 60


def test_recent_kill_or_little_memory_counts_as_a_memory_kill(tmp_path, monkeypatch):
    memory = SimpleNamespace(available=50, total=100)
    monkeypatch.setattr(memory_kills, "COUNTER_FILE", tmp_path / "vmstat")
    monkeypatch.setattr(memory_kills.psutil, "virtual_memory", lambda: memory)
    assert not memory_kills.MemoryKills().was_oom_kill(), "a system without a counter counts no kills"
    memory_kills.COUNTER_FILE.write_text("oom 3\noom_kill 2\n")
    kills = memory_kills.MemoryKills()
    assert not kills.was_oom_kill()
    memory_kills.COUNTER_FILE.write_text("oom 3\noom_kill 3\n")
    assert kills.was_oom_kill()
    for _ in range(memory_kills.MAX_READINGS):
        assert kills.was_oom_kill(), "the kill must count until the process has ended"
        kills.take_reading()
    assert not kills.was_oom_kill(), "an old kill must not count"
    memory.available = 2
    kills.take_reading()
    assert kills.was_oom_kill()


@contextmanager
def limited_group():
    """Run this process and its subprocesses in a control group with little memory."""
    group = GROUPS / f"haltsweep-{os.getpid()}"
    try:
        home = next(
            line.rpartition(":")[2].strip("/")
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.split(":")[1] == "memory"
        )
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except (OSError, StopIteration):
        pytest.skip("control groups cannot be made here")
    try:
        yield group
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            (GROUPS / home / "cgroup.procs").write_text(process)
        group.rmdir()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has control groups")
def test_memory_kill_is_distinguished_from_another_kill(tmp_path):
    with (
        limited_group() as group,
        closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server,
    ):
        server.start(order(children.echo, "first"))
        _, parent, _ = server.receive(PATIENCE_S)
        server.send(None)
        assert server.receive(PATIENCE_S) == ChildEnded(0)
        (group / "cgroup.procs").write_text(str(parent))
        server.start(order(children.end, "kill"))
        assert server.receive(PATIENCE_S) == "last words"
        assert server.receive(PATIENCE_S) == ChildEnded(-signal.SIGKILL)
        server.start(order(children.end, "fill-memory"))
        assert server.receive(PATIENCE_S) == "last words"
        assert server.receive(PATIENCE_S) == ChildEnded(-signal.SIGKILL, is_oom_kill=True)
