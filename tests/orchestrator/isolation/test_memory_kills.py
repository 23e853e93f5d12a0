"""Whether the system killed a process for want of memory, as its counters say."""

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


def system(root, groups, *counters):
    """A system below `root`: its control groups, and its files that count."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for each in counters:
        (root / each).parent.mkdir(parents=True, exist_ok=True)
        (root / each).write_text("low 0\noom 3\noom_kill 2\noom_group_kill 7\n")


@pytest.mark.parametrize(
    ("groups", "counters", "used"),
    [
        ("0::/job/step\n", ["sys/fs/cgroup/job/step/memory.events", "proc/vmstat"], 0),
        ("0::/machine/pod\n", ["sys/fs/cgroup/memory.events", "proc/vmstat"], 0),
        ("4:cpu:/a\n3:memory:/a\n0::/\n", ["sys/fs/cgroup/memory/a/memory.oom_control", "proc/vmstat"], 0),
        ("3:memory:/a\n", ["sys/fs/cgroup/memory/memory.oom_control"], 0),
        ("0::/\n", ["proc/vmstat"], 0),
    ],
)
def test_the_nearest_counter_is_used(tmp_path, groups, counters, used):
    system(tmp_path, groups, *counters)
    assert counter_file(tmp_path) == tmp_path / counters[used]


def test_without_a_counter_nothing_counts(tmp_path):
    assert counter_file(tmp_path) is None
    assert not MemoryKills(None, lambda: 0.5).happened()


def test_a_count_that_rose_lately_or_little_memory_is_a_kill_for_memory(tmp_path):
    counter, available = tmp_path / "memory.events", [0.5]
    counter.write_text("oom_kill 2\n")
    kills = MemoryKills(counter, lambda: available[0])
    assert not kills.happened()
    counter.write_text("oom_kill 3\n")
    assert kills.happened()
    for _ in range(REMEMBERED):
        assert kills.happened(), "the process takes a while to end"
        kills.look()
    assert not kills.happened(), "that was another process, long ago"
    available[0] = 0.02
    kills.look()
    assert kills.happened()


@contextmanager
def limited_group():
    """A control group with little memory; this process is in it meanwhile, as are those that it starts."""
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
def test_a_child_that_the_system_kills_lacked_memory_and_one_that_is_killed_did_not(tmp_path):
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
