"""Acknowledged events survive torn logs, killed writers, and full or read-only disks."""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.sql.engine import connect, explain_error, require_reachable
from orchestrator.ledger.store import Ledger
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history, measurement

WRITER = """
import sys
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.events import measurement_event
from trainables.protocol import Measurement

ledger = Ledger.open(sys.argv[1], "sweep", create=True)
lease = ledger.claim(Holder.current())
start = ledger.last_seq()
for step in range(start + 1, 10_000_000):
    ledger.append([measurement_event(float(step), "a", Measurement(step, 1.0, {"x": step / 3}))], lease)
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
        cuts = sorted({0, 31, 32, 33, size - 1, size, *(stream.randrange(size) for _ in range(20))})
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
        ledger.append([log.start_event(1.0, "new", 1)], lease)
        assert len(list(ledger.events())) == len(events) + 1, "a torn ledger must take new events"
        return len(events)


@pytest.mark.parametrize("seed", range(2))
def test_killed_writer_leaves_all_acknowledged_events(tmp_path: Path, seed: int) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    stream = random.Random(seed)
    num_known = 0
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
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
            ledger.append([log.measurement_event(1.0, "a", measurement(num_written + 1))], lease)
            num_written += 1

    with pytest.raises(StoreError, match="`haltsweep resume`"):
        fill()
    assert num_written > 10
    assert len(list(ledger.events())) == num_written
    sqlalchemy_event.remove(ledger._database.engine, "checkout", limit_pages)
    ledger._database.engine.dispose()
    ledger.append([log.measurement_event(1.0, "a", measurement(num_written + 1))], lease)
    assert len(list(ledger.events())) == num_written + 1


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


def test_other_database_error_masks_the_password() -> None:
    url = make_url("postgresql+psycopg://me:secret@db.example/sweeps")
    fault = explain_error(OperationalError("SELECT 1", {}, Exception("server closed the connection")), url)
    assert "secret" not in str(fault)
    assert "db.example" in str(fault)


def test_database_of_another_program_stays_unchanged(tmp_path):
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE other (x)")
    content = file.read_bytes()
    require_reachable(f"sqlite:///{file}")
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]
