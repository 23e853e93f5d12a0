"""A PostgreSQL that goes away while a sweep runs on it: nothing is lost, nothing is written twice."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.sql.engine import connect, transaction
from orchestrator.ledger.sql.outage import Outage
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import Place, check_log
from tests.faults.outages.outage_launcher import HERE, sweep
from tests.support.processes.forks import Forked, run_module
from tests.support.processes.logs import content
from tests.support.specs.plans import make_plan
from tests.support.stores.postgres import Postgres, postgres
from tests.support.sweeps.histories import history


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same sweep, undisturbed, with steps that take no time."""
    place = Place(tmp_path_factory.mktemp("straight"), sweep())
    assert ended(started(place, "inline", "--hurry")) == ""
    return place


@pytest.fixture
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: Postgres) -> Place:
    return Place(tmp_path, sweep(), storage=server.url())


def started(place: Place, driver: str, *more: str, patience_s: float = 180.0) -> Forked:
    """A launching process; the first of a sweep has begun to train."""
    shown = (place.root, driver, place.storage or HERE, "--wait", patience_s, *more)
    process = run_module("tests.faults.outages.outage_launcher", *shown, session=True)
    until(lambda: (place.data / "steps.txt").exists() or process.poll() is not None)
    return process


def until(true: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def ended(process: Forked) -> str:
    """What it told on its standard error."""
    try:
        return process.communicate(timeout=240)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def cut(server: Postgres) -> int:
    """End every connection but ours, as an administrator would; how many."""
    engine = connect(server.url())
    with transaction(engine, write=True) as connection:
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        count = connection.scalar(text(f"{query} AND backend_type = 'client backend'"))
    engine.dispose()
    return int(count or 0)


def steps(place: Place) -> int:
    return len((place.data / "steps.txt").read_text().splitlines())


def away(server: Postgres, place: Place, more: int = 15) -> None:
    """The server is killed; returns when the trials that run have taken `more` steps without it."""
    server.kill()
    before = steps(place)
    until(lambda: steps(place) >= before + more)


def kill(process: Forked) -> str:
    """The launching process, and all of its group. What it had told on its standard error."""
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()[1]


def check(place: Place, straight: Place) -> None:
    check_log(place.events(), place.plan)
    assert content(place.events()) == content(straight.events())
    with Ledger.open(place.storage or place.folder.ledger_url, place.plan.name) as ledger:
        assert ledger.verify() == []


def carried_through(process: Forked, place: Place, straight: Place) -> str:
    """What was told by a launch that came to its end with all that an undisturbed one measures."""
    shown = ended(process)
    assert process.returncode == 0, shown
    check(place, straight)
    return shown


@pytest.mark.slow
def test_a_launch_that_gives_up_then_is_killed_then_loses_every_connection_loses_no_value(
    place: Place, server: Postgres, straight: Place
) -> None:
    """It waits in vain for its server, is killed while it waits, and is cut off again and again."""
    process = started(place, "inline", patience_s=6.0)
    away(server, place)
    shown = ended(process)
    assert process.returncode == 1, shown
    assert "Traceback" not in shown
    assert "check that the database is reachable and try again (`haltsweep resume`" in shown
    server.start()

    before = steps(place)
    process = started(place, "inline")
    until(lambda: steps(place) > before)
    away(server, place)
    kill(process)
    server.start()

    process = started(place, "inline")
    cuts = 0
    while process.poll() is None:
        cuts += cut(server)
        time.sleep(0.1)
    carried_through(process, place, straight)
    assert cuts > 5


@pytest.mark.slow
def test_on_ray_trials_go_on_while_a_server_restarts_and_a_launch_killed_in_an_outage_loses_no_value(
    place: Place, server: Postgres, straight: Place
) -> None:
    process = started(place, "ray")
    began = time.monotonic()
    away(server, place, more=6)
    time.sleep(max(0.0, began + 5 - time.monotonic()))
    server.start()
    known = len(place.events())
    until(lambda: len(place.events()) > known)

    server.kill()
    time.sleep(1)  # whatever trials do meanwhile: those that have ended wait for the server
    shown = kill(process)
    assert "away since" in shown
    assert "back" in shown
    server.start()
    carried_through(started(place, "inline"), place, straight)


def test_a_lease_that_ran_out_in_an_outage_is_still_ours_unless_it_was_claimed(server: Postgres) -> None:
    now = [1000.0]
    with Ledger.open(server.url(), "sweep", create=True, clock=lambda: now[0], patience_s=60) as ledger:
        lease = ledger.claim(Holder.current())
        server.stop()
        threading.Timer(1.0, server.start).start()
        now[0] += 120
        ledger.append([log.closed(1.0, "done")], lease)
        assert ledger.last_seq() == 1
        assert ledger.renew(lease).expires_at == now[0] + 60


def test_an_outage_is_told_with_its_beginning_and_its_end(server: Postgres) -> None:
    shown: list[Outage | None] = []
    with Ledger.open(server.url(), "sweep", create=True, patience_s=60, on_outage=shown.append) as ledger:
        lease = ledger.claim(Holder.current())
        began = time.time()
        server.stop()
        threading.Timer(2.0, server.start).start()
        ledger.append([log.closed(1.0, "done")], lease)
    (outage, end) = shown
    assert outage is not None
    assert began - 1 <= outage.since <= began + 30
    assert outage.until == outage.since + 60
    assert "connection" in outage.cause
    assert end is None


def test_whoever_only_reads_does_not_wait(server: Postgres) -> None:
    Ledger.open(server.url(), "sweep", create=True).close()
    server.stop()
    with pytest.raises(StoreError, match="check that the database is reachable and try again"):
        Ledger.open(server.url(), "sweep")


class Proxy:
    """Between client and server; armed, it cuts a connection at COMMIT, before or after passing that on."""

    def __init__(self, folder: Path, server: Postgres, *, passes: bool) -> None:
        self.folder = folder
        self._server = str(server.folder / ".s.PGSQL.5432")
        self._passes = passes
        self._armed = threading.Event()
        self.cuts = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def arm(self) -> None:
        """Cut the next commit."""
        self._armed.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            if b"COMMIT\x00" in data and self._armed.is_set():
                self._armed.clear()
                self.cuts += 1
                # Nobody hears the answer.
                client.shutdown(socket.SHUT_RDWR)
                if self._passes:
                    server.sendall(data)
                    time.sleep(0.5)
                break
            if not _sent(server, data):
                break
        _end(server, client)
        client.close()

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        while (data := _received(server)) and _sent(client, data):
            pass
        # A server that gave up on a client that was slow is gone for the client too.
        _end(server, client)
        server.close()


def _sent(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _end(*sockets: socket.socket) -> None:
    """Whoever waits for one of them hears so; each thread closes what it alone waits for."""
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


@pytest.fixture(
    params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["committed", "not committed"]
)
def proxy(
    request: pytest.FixtureRequest, tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxy]:
    if not request.param:
        # The server does not hear that its client is gone: the lock stays until it gives up.
        monkeypatch.setattr("orchestrator.ledger.sql.engine.ABANDONED_MS", 300)
    made = Proxy(tmp_path, server, passes=request.param)
    yield made
    made.close()


def test_a_commit_whose_answer_was_lost_is_written_once(proxy: Proxy) -> None:
    batches = [[event] for event in history(make_plan(2), seed=1)]
    with Ledger.open(proxy.url, "sweep", create=True, patience_s=60) as ledger:
        lease = ledger.claim(Holder.current())
        for number, batch in enumerate(batches):
            if number % 3 == 0:
                proxy.arm()
            ledger.append(batch, lease)
        assert proxy.cuts == (len(batches) + 2) // 3
        assert [(event.kind, event.payload) for event in ledger.events()] == [
            (event.kind, event.payload) for batch in batches for event in batch
        ]
        assert ledger.verify() == []


def test_a_claim_whose_answer_was_lost_is_ours(proxy: Proxy) -> None:
    with Ledger.open(proxy.url, "sweep", create=True, patience_s=60) as ledger:
        proxy.arm()
        lease = ledger.claim(Holder.current())
        assert proxy.cuts == 1
        assert lease.token == 1
        ledger.append([log.closed(1.0, "done")], lease)
        proxy.arm()
        ledger.release(lease)
        assert ledger.lease() is None
