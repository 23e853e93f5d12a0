"""A PostgreSQL server that fails while a sweep uses it loses no event and stores none twice."""

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

from orchestrator.ledger import events as log
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.sql.engine import connect, transaction
from orchestrator.ledger.sql.outage import Outage
from orchestrator.ledger.store import Ledger
from tests.faults.kills.chaos import KillableSweep, check_log
from tests.faults.outages.outage_launcher import HERE, make_sweep_plan
from tests.support.processes.forks import Forked, run_module
from tests.support.processes.logs import content
from tests.support.specs.plans import make_plan
from tests.support.stores.postgres import Postgres, postgres
from tests.support.sweeps.histories import history


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> KillableSweep:
    """Run the same sweep undisturbed, with steps that take no time."""
    sweep = KillableSweep(tmp_path_factory.mktemp("straight"), make_sweep_plan())
    assert finish_and_read_errors(start_launch(sweep, "--hurry")) == ""
    return sweep


@pytest.fixture
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def sweep(tmp_path: Path, server: Postgres) -> KillableSweep:
    return KillableSweep(tmp_path, make_sweep_plan(), storage=server.url())


def start_launch(sweep: KillableSweep, *options: str, patience_s: float = 180.0) -> Forked:
    """Start a launching process and wait until the sweep trains."""
    arguments = (sweep.root, sweep.storage or HERE, "--wait", patience_s, *options)
    process = run_module("tests.faults.outages.outage_launcher", *arguments, session=True)
    wait_until(lambda: (sweep.data / "steps.txt").exists() or process.poll() is not None)
    return process


def wait_until(condition: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def finish_and_read_errors(process: Forked) -> str:
    """Wait for the process and return its standard error."""
    try:
        return process.communicate(timeout=240)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def cut_connections(server: Postgres) -> int:
    """End every connection but this one, as an administrator would; return their number."""
    engine = connect(server.url())
    with transaction(engine, write=True) as connection:
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        count = connection.scalar(text(f"{query} AND backend_type = 'client backend'"))
    engine.dispose()
    return int(count or 0)


def count_steps(sweep: KillableSweep) -> int:
    return len((sweep.data / "steps.txt").read_text().splitlines())


def kill_server(server: Postgres, sweep: KillableSweep) -> None:
    """Kill the server, then wait until running trials have taken steps without it."""
    server.kill()
    num_steps = count_steps(sweep)
    wait_until(lambda: count_steps(sweep) >= num_steps + 10)


@pytest.mark.slow
def test_sweep_survives_a_timeout_a_kill_and_lost_connections(
    sweep: KillableSweep, server: Postgres, undisturbed: KillableSweep
) -> None:
    """The launch waits in vain for its server, is killed while it waits, and loses its connections
    repeatedly."""
    process = start_launch(sweep, patience_s=3.0)
    kill_server(server, sweep)
    errors = finish_and_read_errors(process)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    assert "`haltsweep resume`" in errors
    server.start()

    num_steps = count_steps(sweep)
    process = start_launch(sweep)
    wait_until(lambda: count_steps(sweep) > num_steps)
    kill_server(server, sweep)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    server.start()

    process = start_launch(sweep)
    cuts = 0
    while process.poll() is None:
        cuts += cut_connections(server)
        time.sleep(0.1)
    errors = finish_and_read_errors(process)
    assert process.returncode == 0, errors
    assert cuts > 5
    check_log(sweep.events(), sweep.plan)
    assert content(sweep.events()) == content(undisturbed.events())
    with Ledger.open(server.url(), sweep.plan.name) as ledger:
        assert ledger.verify() == []


def test_lease_that_expired_in_an_outage_stays_valid_unless_claimed(server: Postgres) -> None:
    now = [1000.0]
    with Ledger.open(server.url(), "sweep", create=True, clock=lambda: now[0], patience_s=60) as ledger:
        lease = ledger.claim(Holder.current())
        server.stop()
        threading.Timer(1.0, server.start).start()
        now[0] += 120
        ledger.append([log.release_event(1.0, "done")], lease)
        assert ledger.last_seq() == 1
        assert ledger.renew(lease).expires_at == now[0] + 60


def test_outage_is_reported_with_its_beginning_and_its_end(server: Postgres) -> None:
    outages: list[Outage | None] = []
    with Ledger.open(server.url(), "sweep", create=True, patience_s=60, on_outage=outages.append) as ledger:
        lease = ledger.claim(Holder.current())
        started_at = time.time()
        server.stop()
        threading.Timer(2.0, server.start).start()
        ledger.append([log.release_event(1.0, "done")], lease)
    (outage, end) = outages
    assert started_at - 1 <= outage.since <= started_at + 30
    assert outage.until == outage.since + 60
    assert "connection" in outage.cause
    assert end is None


class Proxy:
    """A proxy between client and server.

    Once armed, it forwards a COMMIT and cuts the connection, so that the client gets no answer.
    """

    def __init__(self, folder: Path, server: Postgres) -> None:
        self.folder = folder
        self._server = str(server.folder / ".s.PGSQL.5432")
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
        """Cut the connection at the next commit."""
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
        while data := _receive(client):
            if b"COMMIT\x00" in data and self._armed.is_set():
                self._armed.clear()
                self.cuts += 1
                # The client never receives the answer.
                client.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
                time.sleep(0.5)
                break
            if not _send(server, data):
                break
        _shut_down(server, client)
        client.close()

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        while (data := _receive(server)) and _send(client, data):
            pass
        # If the server closes the connection of a slow client, the client's connection must end too.
        _shut_down(server, client)
        server.close()


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _shut_down(*sockets: socket.socket) -> None:
    """Shut down the sockets, so that waiting threads wake up; each thread closes only its socket."""
    for connection in sockets:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


@pytest.fixture
def proxy(tmp_path: Path, server: Postgres) -> Iterator[Proxy]:
    proxy_ = Proxy(tmp_path, server)
    yield proxy_
    proxy_.close()


def test_commit_with_a_lost_answer_is_stored_once(proxy: Proxy) -> None:
    batches = [[event] for event in history(make_plan(2), seed=1)]
    with Ledger.open(proxy.url, "sweep", create=True, patience_s=60) as ledger:
        lease = ledger.claim(Holder.current())
        for number, batch in enumerate(batches):
            if number % 8 == 0:
                proxy.arm()
            ledger.append(batch, lease)
        assert proxy.cuts == (len(batches) + 7) // 8
        assert [(event.kind, event.payload) for event in ledger.events()] == [
            (event.kind, event.payload) for batch in batches for event in batch
        ]
        assert ledger.verify() == []


def test_claim_with_a_lost_answer_is_valid(proxy: Proxy) -> None:
    with Ledger.open(proxy.url, "sweep", create=True, patience_s=60) as ledger:
        proxy.arm()
        lease = ledger.claim(Holder.current())
        assert proxy.cuts == 1
        assert lease.token == 1
        ledger.append([log.release_event(1.0, "done")], lease)
        proxy.arm()
        ledger.release(lease)
        assert ledger.lease() is None
