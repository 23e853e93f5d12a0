"""A server runs one child after the other, and whatever a child started is gone when it has ended."""

import os
import signal
import sys
import time
from contextlib import closing
from multiprocessing.connection import Pipe
from pathlib import Path

import psutil
import pytest

from orchestrator.isolation.child_server import ChildServer, settings_here, start_interpreter
from orchestrator.isolation.messages import ChildEnded, ServerReady
from tests.support.processes import children
from tests.support.processes.children import Work, order
from tests.support.processes.forks import Forked
from tests.support.processes.process_lookup import wait_until

PATIENCE_S = 60
SOON_S = 1.0
"""How long processes of a killed owner may last."""


@pytest.fixture
def server(tmp_path):
    with closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server:
        yield server


def end_of(server):
    """How the child ended, and what it sent before."""
    sent = []
    while not isinstance(message := server.receive(PATIENCE_S), ChildEnded):
        assert message is not None, "the child neither sends nor ends"
        sent.append(message)
    return message.exit_code, sent


def alive(pids):
    """Which of the processes are there, and no zombies."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def noted(notes):
    return [int(line) for line in notes.read_text().split() if line != "ready"]


def test_messages_go_both_ways_until_the_child_returns(server):
    server.start(order(children.echo, "first"))
    child, _, message = server.receive(PATIENCE_S)
    assert message == "first"
    assert child != os.getpid()
    server.send({"second": 2})
    assert server.receive(PATIENCE_S)[2] == {"second": 2}
    assert server.receive(0.01) is None, "nothing is sent yet"
    server.send(None)
    assert server.receive(PATIENCE_S) == ChildEnded(0)


def test_each_child_is_another_process_of_the_same_server(server):
    seen = []
    for _ in range(3):
        server.start(order(children.echo, "who"))
        seen.append(server.receive(PATIENCE_S)[:2])
        server.send(None)
        assert end_of(server) == (0, [])
    assert len({child for child, _ in seen}) == 3
    assert len({parent for _, parent in seen}) == 1


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("return", 0),
        ("raise", 1),
        ("os-exit", 3),
        ("segfault", -signal.SIGSEGV),
        ("kill", -signal.SIGKILL),
        ("exit-on-signal", -signal.SIGTERM),
        ("thread", 0),
    ],
)
def test_the_owner_gets_what_was_sent_and_the_exit_code(server, tmp_path, how, code):
    log = tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"
    (tmp_path / "sweep").mkdir()
    server.start(order(children.end, how, log=log))
    assert end_of(server) == (code, ["last words"])
    assert log.read_text().startswith("printed\n")
    server.start(order(children.end, "return"))
    assert end_of(server) == (0, ["last words"]), "the next child runs"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_where_the_server_was_killed_everything_that_the_child_started_ends(server, tmp_path):
    notes = tmp_path / "pids.txt"
    server.start(order(children.start_processes, notes))
    parent = server.receive(PATIENCE_S)
    pids = noted(notes)
    assert alive(pids) == pids
    os.kill(parent, signal.SIGKILL)
    assert end_of(server) == (-signal.SIGKILL, [])
    wait_until(lambda: not alive(pids), "all processes have ended")


def test_a_child_may_close_the_descriptors_of_its_files(server):
    server.start(order(children.close_descriptors, 200))
    assert end_of(server) == (0, ["sent"])


def test_a_child_that_closes_its_connection_too_has_ended(server):
    server.start(order(children.close_descriptors, children.DESCRIPTOR_LIMIT))
    code, sent = end_of(server)
    assert code == 1
    assert sent == []
    server.start(order(children.end, "return"))
    assert end_of(server) == (0, ["last words"])


def test_a_child_that_hangs_can_be_killed(server):
    server.start(order(children.end, "ignore-signals"))
    assert server.receive(PATIENCE_S) == "last words"
    began = time.monotonic()
    server.kill()
    assert time.monotonic() - began < PATIENCE_S / 4
    server.start(order(children.end, "return"))
    assert end_of(server) == (0, ["last words"])


@pytest.mark.parametrize("how", ["return", "kill", "close"])
def test_everything_that_a_child_started_ends_with_it(server, tmp_path, how):
    notes = tmp_path / "pids.txt"
    server.start(order(children.start_processes, notes))
    assert isinstance(server.receive(PATIENCE_S), int)
    pids = noted(notes)
    assert alive(pids) == pids
    assert len(pids) == children.STARTED + 1
    if how == "return":
        server.send(None)
        assert end_of(server) == (0, [])
    elif how == "kill":
        server.kill()
    else:
        server.close()
    assert alive(pids) == []


def test_the_scratch_folder_of_a_child_goes_with_it(server, tmp_path):
    scratch = tmp_path / "scratch"
    (scratch / "below").mkdir(parents=True)
    server.start(order(children.end, "kill", scratch=scratch))
    end_of(server)
    assert not scratch.exists()


def test_where_the_server_was_killed_the_child_is_lost_and_the_next_one_runs(server):
    server.start(order(children.echo, "who"))
    child, parent, _ = server.receive(PATIENCE_S)
    os.kill(parent, signal.SIGKILL)
    assert end_of(server) == (-signal.SIGKILL, [])
    wait_until(lambda: not alive([child, parent]), "the child has ended with its server")
    server.start(order(children.echo, "who"))
    assert server.receive(PATIENCE_S)[1] != parent
    server.send(None)
    assert end_of(server) == (0, [])


def test_a_server_killed_between_two_children_is_replaced(server):
    server.start(order(children.echo, "who"))
    _, parent, _ = server.receive(PATIENCE_S)
    server.send(None)
    assert end_of(server) == (0, [])
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: not alive([parent]), "the server has ended")
    server.start(order(children.end, "return"))
    code, sent = end_of(server)
    if (code, sent) == (-signal.SIGKILL, []):  # the order went to the one that was killed
        server.start(order(children.end, "return"))
        code, sent = end_of(server)
    assert (code, sent) == (0, ["last words"])


def _own(notes, folder):
    children.start_server_and_child(notes, folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells processes that their parent has ended")
def test_a_killed_owner_leaves_no_process(tmp_path, number):
    notes = tmp_path / "pids.txt"
    owner = Forked(_own, notes, tmp_path)
    try:
        wait_until(lambda: notes.exists() and "ready" in notes.read_text(), "the child runs")
        pids = noted(notes)
        assert len(pids) == children.STARTED + 2, "the server, too"
        owner.send_signal(number)
        owner.wait(PATIENCE_S)
        died_at = time.monotonic()
        wait_until(lambda: not alive(pids), "all processes have ended")
        assert time.monotonic() - died_at < SOON_S
        assert (tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log").read_text() == "printed\n"
        assert not (tmp_path / "scratch").exists()
    finally:
        owner.end()


def test_sets_have_the_same_order_in_all_slots_and_in_programs(tmp_path, monkeypatch):
    """Else `enumerate(set(labels))` numbers classes by chance, and no seed of a trial changes that."""
    monkeypatch.setattr(ChildServer, "start_process", staticmethod(start_interpreter))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    ask = "hash('a'), __import__('subprocess').check_output([sys.executable, '-c', 'print(hash(\"a\"))'])"
    found = set()
    for slot in ("1", "2"):
        with closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server:
            work = Work(f"import sys; result = {ask}", tmp_path / "trials" / slot)
            server.start(order(children.work, work))
            mine, of_program = server.receive(PATIENCE_S)
            found |= {mine, int(of_program)}
    assert len(found) == 1


def ready(settings):
    """A server's own answer."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            ChildServer.start_process(theirs)
        ours.send(settings)
        assert ours.poll(PATIENCE_S)
        answer = ours.recv()
        ours.send(None)
    assert isinstance(answer, ServerReady)
    return answer


THREADED = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1\n", ""),
        (THREADED, "importing study starts 1 thread"),
        ("raise ValueError('no')\n", ""),
        ("import does_not_exist\n", ""),
    ],
)
def test_children_are_forks_unless_the_import_starts_threads(tmp_path, monkeypatch, code, reason):
    (tmp_path / "study.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    settings = settings_here("study", tmp_path, ())
    assert ready(settings).spawn_reason == reason


@pytest.mark.slow
def test_where_children_cannot_be_forks_they_are_fresh_interpreters(tmp_path, monkeypatch):
    (tmp_path / "study.py").write_text(THREADED)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ChildServer(settings_here("study", tmp_path, ()))) as server:
        server.start(order(children.send_fork_state, "study"))
        assert end_of(server) == (0, [(False, 1)])
        server.start(order(children.end, "os-exit"))
        assert end_of(server) == (3, ["last words"])
        notes = tmp_path / "pids.txt"
        server.start(order(children.start_processes, notes))
        assert isinstance(server.receive(PATIENCE_S), int)
        server.kill()
        assert alive(noted(notes)) == []


def test_forks_have_the_module_and_one_thread(tmp_path, monkeypatch):
    (tmp_path / "study.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ChildServer(settings_here("study", tmp_path, ()))) as server:
        server.start(order(children.send_fork_state, "study"))
        assert end_of(server) == (0, [(True, 1)])


def test_a_child_runs_its_own_exit_handlers_and_not_those_of_the_import(tmp_path, monkeypatch):
    (tmp_path / "study.py").write_text("import tempfile\nFOLDER = tempfile.TemporaryDirectory()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ChildServer(settings_here("study", tmp_path, ()))) as server:
        for _ in range(2):
            server.start(order(children.use_folder, "study"))
            code, ((is_there, made), *handled) = end_of(server)
            assert (code, is_there, handled) == (0, True, ["handled"])
            assert not Path(made).exists()


def test_the_server_lists_the_launch_folder_once(tmp_path):
    (tmp_path / "data.txt").write_text("1")
    with closing(ChildServer(settings_here(children.MODULE, tmp_path, ()))) as server:
        server.start(order(children.send_launch_files))
        _, (first,) = end_of(server)
        (tmp_path / "later.txt").write_text("2")
        server.start(order(children.send_launch_files))
        assert end_of(server) == (0, [first])
    assert list(first.copied) == ["data.txt"]
