"""Acknowledged events survive torn logs, killed writers, and full or read-only disks."""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.sql.engine import connect, explain_error, require_answer
from orchestrator.ledger.sql.outage import Outage
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history, measurement

WRITER = """
import sys
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.events import measured
from trainables.protocol import Measurement

ledger = Ledger.open(sys.argv[1], "sweep", create=True)
lease = ledger.claim(Holder.current())
start = ledger.last_seq()
for step in range(start + 1, 10_000_000):
    ledger.append([measured(float(step), "a", Measurement(step, 1.0, {"x": step / 3}))], lease)
    sys.stdout.write(f"{step}\\n")
    sys.stdout.flush()
"""


def copy_with_torn_log(source: Path, target: Path, log_bytes: int) -> str:
    """Copy the database as a machine crash leaves it: its write-ahead log torn after `log_bytes`."""
    target.mkdir()
    shutil.copy(source, target / "ledger.db")
    wal = source.with_name(source.name + "-wal").read_bytes()
    (target / "ledger.db-wal").write_bytes(wal[:log_bytes])
    return f"sqlite:///{target / 'ledger.db'}"


def test_torn_log_reopens_to_a_prefix(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with Ledger.open(f"sqlite:///{file}", "sweep", create=True) as ledger:
        lease = ledger.claim(DEAD)
        batches = [[event] for event in history(make_plan(1), seed=1)]
        for batch in batches:
            ledger.append(batch, lease)
        all_events = list(ledger.events())
        size = file.with_name("ledger.db-wal").stat().st_size
        stream = random.Random(0)
        cuts = sorted({0, 1, 31, 32, 33, size - 1, size, *(stream.randrange(size) for _ in range(60))})
        lengths = []
        for cut in cuts:
            url = copy_with_torn_log(file, tmp_path / f"cut-{cut}", cut)
            lengths.append(_readable_prefix(url, all_events))
    assert lengths == sorted(lengths), "a longer log must not contain fewer events"
    assert lengths[-1] == len(all_events)
    assert len(set(lengths)) > 5, "the cuts must meet different commits"


def _readable_prefix(url: str, all_events: list[Event]) -> int:
    try:
        ledger = Ledger.open(url, "sweep")
    except StoreError:
        return 0  # torn before the sweep itself was committed
    with ledger:
        events = list(ledger.events())
        assert events == all_events[: len(events)]
        lease = ledger.lease() or ledger.claim(DEAD)
        ledger.append([log.started(1.0, "new", 1)], lease)
        assert len(list(ledger.events())) == len(events) + 1, "a torn ledger must take new events"
        return len(events)


@pytest.mark.parametrize("seed", range(6))
def test_killed_writer_leaves_all_acknowledged_events(tmp_path: Path, seed: int) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    stream = random.Random(seed)
    num_known = 0
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        first_line = writer.stdout.readline()
        time.sleep(stream.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        acknowledged = [first_line, *writer.stdout.readlines()]
        writer.wait()
        writer.stdout.close()
        complete = [int(line) for line in acknowledged if line.endswith(b"\n")]
        with Ledger.open(url, "sweep") as ledger:
            steps = [event.payload["step"] for event in ledger.events()]
        assert steps == list(range(1, len(steps) + 1))
        assert complete[0] == num_known + 1
        assert len(steps) - complete[-1] in (0, 1), "only acknowledged events and at most one pending event"
        num_known = len(steps)


def test_full_disk_keeps_acknowledged_events(ledger: Ledger) -> None:
    lease = ledger.claim(DEAD)

    def limit_pages(connection: object, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")  # type: ignore[attr-defined]

    sqlalchemy_event.listen(ledger._database.engine, "checkout", limit_pages)
    num_written = 0

    def fill() -> None:
        nonlocal num_written
        while True:
            ledger.append([log.measured(1.0, "a", measurement(num_written + 1))], lease)
            num_written += 1

    with pytest.raises(StoreError, match="`haltsweep resume`"):
        fill()
    assert num_written > 10
    assert len(list(ledger.events())) == num_written
    sqlalchemy_event.remove(ledger._database.engine, "checkout", limit_pages)
    ledger._database.engine.dispose()
    ledger.append([log.measured(1.0, "a", measurement(num_written + 1))], lease)
    assert len(list(ledger.events())) == num_written + 1


def test_file_size_limit_keeps_acknowledged_events(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from orchestrator.errors import StoreError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        source = sys.stdin.read()
        sys.argv = ["-", sys.argv[1]]
        try:
            exec(source)
        except StoreError as error:
            print(error, file=sys.stderr)
            sys.exit(7)
        """
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    result = subprocess.run(
        [sys.executable, "-c", script, url], input=WRITER, capture_output=True, text=True, check=False
    )
    assert result.returncode == 7, result.stderr
    assert "then `haltsweep resume`" in result.stderr
    with Ledger.open(url, "sweep") as ledger:
        assert len(list(ledger.events())) == int(result.stdout.split()[-1])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_ledger_is_refused_with_advice(ledger: Ledger, url: str) -> None:
    Path(url.removeprefix("sqlite:///")).chmod(0o400)
    with pytest.raises(StoreError):
        ledger.claim(DEAD)


@pytest.fixture
def read_only(ledger: Ledger) -> Ledger:
    def forbid_writes(connection: object, *_: object) -> None:
        connection.execute("PRAGMA query_only = ON")  # type: ignore[attr-defined]

    sqlalchemy_event.listen(ledger._database.engine, "checkout", forbid_writes)
    return ledger


def test_read_only_database_error_contains_advice(read_only: Ledger) -> None:
    with pytest.raises(StoreError, match="readonly database"):
        read_only.claim(DEAD)


def test_missing_folder_error_contains_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file"):
        Ledger.open(f"sqlite:///{tmp_path / 'gone' / 'ledger.db'}", "sweep", create=True)


def test_damage_inside_the_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with Ledger.open(f"sqlite:///{file}", "sweep", create=True) as ledger:
        ledger.append(list(history(make_plan(4), seed=1)), ledger.claim(DEAD))
    content = bytearray(file.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(StoreError):
        Ledger.open(f"sqlite:///{file}", "sweep")


def test_error_of_a_locked_database_contains_advice(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.ledger.sql.engine.BUSY_TIMEOUT_MS", 50)
    blocker = connect(url)
    with (
        blocker.connect().execution_options(haltsweep_write=True) as connection,
        connection.begin(),
        Ledger.open(url, "sweep") as waiting_ledger,
        pytest.raises(StoreError),
    ):
        waiting_ledger.claim(DEAD)
    blocker.dispose()


@pytest.mark.slow
def test_writer_with_patience_waits_for_a_locked_database(
    ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.ledger.sql.engine.BUSY_TIMEOUT_MS", 50)
    lease = ledger.claim(DEAD)
    blocker = connect(url)
    connection = blocker.connect().execution_options(haltsweep_write=True)
    transaction_ = connection.begin()
    outages: list[Outage | None] = []
    with Ledger.open(url, "sweep", patience_s=60.0, on_outage=outages.append) as waiting:
        waiter = threading.Thread(target=waiting.append, args=([log.closed(1.0, "done")], lease))
        waiter.start()
        while not outages:
            time.sleep(0.05)
        assert outages[0] is not None
        assert "locked" in outages[0].cause
        transaction_.rollback()
        connection.close()
        waiter.join(60)
        assert [event.kind for event in waiting.events()] == [log.EventKind.CLOSED]
        assert outages[1:] == [None]
    blocker.dispose()


def test_other_database_error_masks_the_password() -> None:
    url = make_url("postgresql+psycopg://me:secret@db.example/sweeps")
    fault = explain_error(OperationalError("SELECT 1", {}, Exception("server closed the connection")), url)
    assert "server closed the connection" in str(fault)
    assert "secret" not in str(fault)
    assert "db.example" in str(fault)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_connection_that_cannot_be_closed_logs_no_traceback(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    engine = connect(f"sqlite:///{tmp_path}/ledger.db")
    engine.connect().close()

    def fail(connection: Any) -> None:
        connection.close()
        raise error

    monkeypatch.setattr(engine.dialect, "do_close", fail)
    with pytest.raises(KeyboardInterrupt) if error is KeyboardInterrupt else nullcontext():
        engine.dispose()
    assert caplog.records == []


def test_database_of_another_program_stays_unchanged(tmp_path):
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE other (x)")
    content = file.read_bytes()
    require_answer(f"sqlite:///{file}")
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]
