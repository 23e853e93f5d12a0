"""Counters of the system show whether a process was killed for lack of memory."""

import os
import signal
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.memory_kills import REMEMBERED, MemoryKills, counter_file
from orchestrator.isolation.messages import ChildEnded
from tests.support.processes import children
from tests.support.processes.children import order

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT = 256 << 20
PATIENCE_S = 60


@pytest.mark.parametrize(
    ("groups", "counter"),
    [
        ("0::/job/step\n", "sys/fs/cgroup/job/step/memory.events"),
        ("4:cpu:/a\n3:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
        ("0::/\n", "proc/vmstat"),
    ],
)
def test_nearest_counter_is_used(tmp_path, groups, counter):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name in (counter, "proc/vmstat"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("oom 3\noom_kill 2\n")
    assert counter_file(tmp_path) == tmp_path / counter


def test_recent_kill_or_little_memory_counts_as_a_memory_kill(tmp_path):
    counter, available = tmp_path / "memory.events", [0.5]
    counter.write_text("oom_kill 2\n")
    kills = MemoryKills(counter, lambda: available[0])
    assert not kills.happened()
    counter.write_text("oom_kill 3\n")
    assert kills.happened()
    for _ in range(REMEMBERED):
        assert kills.happened(), "the kill must count until the process has ended"
        kills.look()
    assert not kills.happened(), "an old kill must not count"
    available[0] = 0.02
    kills.look()
    assert kills.happened()


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
