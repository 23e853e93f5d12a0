"""A server runs one child after another, and ends everything that a child started."""

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from orchestrator.isolation.child_server import ChildServer, settings_here, start_interpreter
from orchestrator.isolation.messages import ChildEnded
from tests.support.processes import children
from tests.support.processes.children import Work, order
from tests.support.processes.forks import Forked
from tests.support.processes.process_lookup import wait_until

PATIENCE_S = 60
END_LIMIT_S = 1.0
"""Longest life of processes after their owner was killed."""


@pytest.fixture
def server(tmp_path):
    with closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server:
        yield server


def end_of(server):
    """Return the exit code of the child and its messages."""
    sent = []
    while not isinstance(message := server.receive(PATIENCE_S), ChildEnded):
        assert message is not None, "the child neither sends nor ends"
        sent.append(message)
    return message.exit_code, sent


def alive_processes(pids):
    """Return the running processes, without zombies."""
    running = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
        except psutil.NoSuchProcess:
            continue
    return running


def noted_pids(notes):
    return [int(line) for line in notes.read_text().split() if line != "ready"]


def test_messages_are_sent_both_ways_until_the_child_returns(server):
    server.start(order(children.echo, "first"))
    child, parent, message = server.receive(PATIENCE_S)
    assert message == "first"
    assert child != os.getpid()
    server.send({"second": 2})
    assert server.receive(PATIENCE_S)[2] == {"second": 2}
    assert server.receive(0.01) is None, "the child must not have sent another message"
    server.send(None)
    assert server.receive(PATIENCE_S) == ChildEnded(0)
    server.start(order(children.echo, "who"))
    next_child, next_parent, _ = server.receive(PATIENCE_S)
    assert next_child != child
    assert next_parent == parent, "the next child must have the same server"
    server.send(None)
    assert end_of(server) == (0, [])


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise", 1),
        ("os-exit", 3),
        ("segfault", -signal.SIGSEGV),
        ("exit-on-signal", -signal.SIGTERM),
        ("thread", 0),
    ],
)
def test_owner_receives_messages_and_the_exit_code(server, tmp_path, end, code):
    log = tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"
    (tmp_path / "sweep").mkdir()
    server.start(order(children.end, end, log=log))
    assert end_of(server) == (code, ["last words"])
    assert log.read_text().startswith("printed\n")
    server.start(order(children.end, "return"))
    assert end_of(server) == (0, ["last words"]), "the next child must run"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_kill_of_the_server_ends_all_processes_of_the_child(server, tmp_path):
    notes = tmp_path / "pids.txt"
    server.start(order(children.start_processes, notes))
    parent = server.receive(PATIENCE_S)
    pids = noted_pids(notes)
    assert alive_processes(pids) == pids
    os.kill(parent, signal.SIGKILL)
    assert end_of(server) == (-signal.SIGKILL, [])
    wait_until(lambda: not alive_processes([*pids, parent]), "all processes have ended")
    server.start(order(children.end, "return"))
    assert end_of(server) == (0, ["last words"]), "the next child must run"


@pytest.mark.parametrize("end", ["return", "kill"])
def test_processes_of_a_child_end_with_the_child(server, tmp_path, end):
    notes = tmp_path / "pids.txt"
    server.start(order(children.start_processes, notes))
    assert isinstance(server.receive(PATIENCE_S), int)
    pids = noted_pids(notes)
    assert alive_processes(pids) == pids
    assert len(pids) == children.STARTED + 1
    if end == "return":
        server.send(None)
        assert end_of(server) == (0, [])
    else:
        server.kill()
    assert alive_processes(pids) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the end of a parent process")
def test_killed_owner_leaves_no_process(tmp_path):
    notes = tmp_path / "pids.txt"
    owner = Forked(children.start_server_and_child, notes, tmp_path)
    try:
        wait_until(lambda: notes.exists() and "ready" in notes.read_text(), "the child runs")
        pids = noted_pids(notes)
        assert len(pids) == children.STARTED + 2, "the server must be among the processes"
        owner.send_signal(signal.SIGKILL)
        owner.wait(PATIENCE_S)
        died_at = time.monotonic()
        wait_until(lambda: not alive_processes(pids), "all processes have ended")
        assert time.monotonic() - died_at < END_LIMIT_S
        assert (tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log").read_text() == "printed\n"
        assert not (tmp_path / "scratch").exists()
    finally:
        owner.end()


def test_sets_have_the_same_order_in_all_slots_and_programs(tmp_path, monkeypatch):
    """Otherwise `enumerate(set(labels))` would number classes randomly, independent of the trial's seed."""
    monkeypatch.setattr(ChildServer, "start_process", staticmethod(start_interpreter))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    expression = (
        "hash('a'), __import__('subprocess').check_output([sys.executable, '-c', 'print(hash(\"a\"))'])"
    )
    hashes = set()
    for slot in ("1", "2"):
        with closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server:
            work = Work(f"import sys; result = {expression}", tmp_path / "trials" / slot)
            server.start(order(children.work, work))
            child_hash, program_hash = server.receive(PATIENCE_S)
            hashes |= {child_hash, int(program_hash)}
    assert len(hashes) == 1


THREADED = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"


@pytest.mark.parametrize(
    ("code", "is_fork"),
    [("x = 1\n", True), pytest.param(THREADED, False, marks=pytest.mark.slow)],
    ids=["fork", "threads"],
)
def test_children_are_forks_unless_the_import_starts_threads(tmp_path, monkeypatch, code, is_fork):
    (tmp_path / "study.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ChildServer(settings_here("study", tmp_path, ()))) as server:
        server.start(order(children.send_fork_state, "study"))
        assert end_of(server) == (0, [(is_fork, 1)])
        server.start(order(children.end, "os-exit"))
        assert end_of(server) == (3, ["last words"])


def test_child_runs_only_exit_handlers_registered_in_the_child(tmp_path, monkeypatch):
    (tmp_path / "study.py").write_text("import tempfile\nFOLDER = tempfile.TemporaryDirectory()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ChildServer(settings_here("study", tmp_path, ()))) as server:
        for _ in range(2):
            server.start(order(children.use_folder, "study"))
            code, ((is_there, folder), *handlers) = end_of(server)
            assert (code, is_there, handlers) == (0, True, ["handled"])
            assert not Path(folder).exists()
