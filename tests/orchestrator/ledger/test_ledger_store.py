"""Guarantees of the ledger, on SQLite and, where a server can be started, on PostgreSQL."""

import errno
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove

from orchestrator.errors import InputError, LeaseLost, StoreError
from orchestrator.files.redact import escape_unstorable_values
from orchestrator.ledger import events as log
from orchestrator.ledger.event_filter import EventAfterEndError
from orchestrator.ledger.events import Event
from orchestrator.ledger.fold import measurements
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.sql.engine import connect, require_locks
from orchestrator.ledger.sql.schema import SCHEMA_VERSION
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import read_summaries
from orchestrator.trials import Outcome, OutcomeKind
from tests.orchestrator.ledger.conftest import execute
from tests.support.specs.examples import examples
from tests.support.specs.plans import make_plan
from tests.support.sweeps.histories import DEAD, history, measurement, trial_of

FINISHED = Outcome(OutcomeKind.FINISHED, "all steps done")


def without_seq(events: Iterator[Event]) -> list[Event]:
    return [replace(event, seq=None) for event in events]


def test_another_connection_reads_the_written_events(store: Ledger, any_url: str) -> None:
    written_events = list(history(make_plan(3), seed=1))
    assert store.last_seq() == 0
    store.append(written_events, store.claim(DEAD))
    with Ledger.open(any_url, "sweep") as other_ledger:
        read_events = list(other_ledger.events())
        assert without_seq(iter(read_events)) == written_events
        positions = [event.seq or 0 for event in read_events]
        assert positions == sorted(set(positions))
        assert other_ledger.last_seq() == positions[-1]
        middle = positions[len(positions) // 2]
        assert list(other_ledger.events(after_seq=middle)) == [
            event for event in read_events if (event.seq or 0) > middle
        ]
        assert other_ledger.last_seq() > 0


def test_reading_continues_over_many_pages(store: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.ledger.ledger_reader.PAGE_ROWS", 7)
    events = list(history(make_plan(4), seed=1))
    store.append(events, store.claim(DEAD))
    assert without_seq(store.events()) == events


def test_sweeps_in_one_database_are_separate(store: Ledger, any_url: str) -> None:
    lease = store.claim(DEAD)
    store.append([log.start_event(1.0, "a", 1), log.measurement_event(2.0, "a", measurement(1))], lease)
    with Ledger.open(any_url, "other", create=True) as other_ledger:
        assert other_ledger.last_seq() == 0
        assert other_ledger.uid != store.uid
        events = [log.measurement_event(2.0, "a", measurement(1)), log.end_event(3.0, "a", FINISHED)]
        other_ledger.append(events, other_ledger.claim(Holder.current()))
        assert len(list(other_ledger.events())) == 2
    store.append([log.measurement_event(3.0, "a", measurement(2))], lease)
    assert [event.kind for event in store.events()] == ["started", "measured", "measured"]


def test_first_measurement_of_a_step_is_retained(store: Ledger) -> None:
    lease = store.claim(DEAD)
    for trials in (("a", 0.1), ("a", 0.2)), (("a", 0.3), ("b", 0.4)):
        store.append(
            [log.measurement_event(1.0, trial, measurement(5, value)) for trial, value in trials], lease
        )
    assert measurements(store.events()) == {"a": [measurement(5, 0.1)], "b": [measurement(5, 0.4)]}


def test_event_after_a_final_end_is_refused(store: Ledger) -> None:
    lease = store.claim(DEAD)
    store.append([log.measurement_event(1.0, "a", measurement(1)), log.end_event(2.0, "a", FINISHED)], lease)
    earlier_events = list(store.events())
    for late_event in (
        log.measurement_event(3.0, "a", measurement(2)),
        log.end_event(3.0, "a", FINISHED),
        log.start_event(3.0, "a", 2),
    ):
        with pytest.raises(EventAfterEndError, match=rf"\ba\b.*'{late_event.kind}'"):
            store.append([log.start_event(3.0, "b", 1), late_event], lease)
    with pytest.raises(EventAfterEndError, match=r"\bb\b.*'measured'"):
        store.append(
            [log.end_event(1.0, "b", FINISHED), log.measurement_event(2.0, "b", measurement(1))], lease
        )
    assert list(store.events()) == earlier_events, "a refused batch must leave nothing behind"


def test_retried_trial_continues_after_its_end(store: Ledger) -> None:
    lease = store.claim(DEAD)
    crashed = Outcome(OutcomeKind.CRASHED, "a mistake")
    store.append(
        [log.measurement_event(1.0, "a", measurement(1, 0.1)), log.end_event(2.0, "a", crashed)], lease
    )
    retry_events = [
        log.retry_event(3.0, "a", -1),
        log.start_event(3.0, "a", 2),
        log.measurement_event(4.0, "a", measurement(1, 0.2)),
    ]
    store.append(retry_events, lease)
    store.append(
        [log.measurement_event(5.0, "a", measurement(1, 0.3)), log.end_event(6.0, "a", FINISHED)], lease
    )
    assert [item.metrics["valid/score"] for item in measurements(store.events())["a"]] == [0.2]
    with pytest.raises(EventAfterEndError, match=r"\ba\b.*'started'"):
        store.append([log.start_event(7.0, "a", 3)], lease)
    assert store.verify() == []


def test_only_the_newest_end_of_a_retried_trial_is_counted(store: Ledger, any_url: str) -> None:
    lease = store.claim(DEAD)
    crashed = Outcome(OutcomeKind.CRASHED, "a mistake")
    for trial in ("a", "b"):
        store.append([log.end_event(1.0, trial, crashed), log.retry_event(2.0, trial, -1)], lease)
    store.append([log.end_event(3.0, "a", FINISHED)], lease)
    (summary,) = read_summaries(any_url)
    assert summary.ended == {OutcomeKind.FINISHED: 1}


def test_append_takes_constant_work_in_a_long_ledger(tmp_path: Path) -> None:
    """Work is counted in steps of SQLite's virtual machine, which do not depend on time."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def watch(connection: sqlite3.Connection, _: object) -> None:
        connection.set_progress_handler(count, 1)

    steps_by_length = []
    listen(Engine, "connect", watch)
    try:
        for num_trials in (20, 400):
            plan = make_plan(1, trials_per_arm=num_trials)
            with Ledger.open(f"sqlite:///{tmp_path / str(num_trials)}.db", "sweep", create=True) as ledger:
                lease = ledger.claim(Holder.current())
                ledger.append(list(history(plan, closed=None)), lease)
                trial = replace(trial_of(plan, 0), planned=replace(plan.trials[0], trial_id="another"))
                ledger.append([log.params_event(1.0, trial)], lease)
                earlier_events = steps
                ledger.append([log.measurement_event(1.0, "another", measurement(1))], lease)
                steps_by_length.append(steps - earlier_events)
    finally:
        remove(Engine, "connect", watch)
    assert steps_by_length[1] < 2 * steps_by_length[0]


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_values_that_are_not_finite_are_stored_unchanged(store: Ledger, value: float) -> None:
    store.append([log.measurement_event(1.0, "a", measurement(3, value))], store.claim(DEAD))
    (event,) = store.events()
    assert repr(event.payload["metrics"]["valid/score"]) == repr(value)
    assert store.verify() == []


@examples(20)
@given(
    st.dictionaries(st.text(st.characters(), max_size=8), st.floats(allow_nan=False, allow_infinity=False)),
    st.text(st.characters(), min_size=1),
)
@example({"\ud800": 1.0}, "it said \udfff\0")
def test_every_finite_float_and_every_text_is_stored(metrics: dict[str, float], reason: str) -> None:
    written_events = [
        log.measurement_event(0.1 + 0.2, "a", replace(measurement(1), metrics=metrics)),
        log.end_event(1e9 + 1 / 3, "a", Outcome(OutcomeKind.CRASHED, reason)),
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(f"sqlite:///{folder}/ledger.db", "sweep", create=True) as ledger,
    ):
        ledger.append(written_events, ledger.claim(DEAD))
        expected = [
            replace(event, payload=escape_unstorable_values(event.payload)) for event in written_events
        ]
        assert without_seq(ledger.events()) == expected


def test_threads_may_share_a_ledger(ledger: Ledger) -> None:
    lease = ledger.claim(DEAD)
    threads = [
        threading.Thread(
            target=lambda name=name: [
                ledger.append([log.measurement_event(1.0, name, measurement(step))], lease)
                for step in range(10)
            ]
        )
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {trial: len(items) for trial, items in measurements(ledger.events()).items()} == dict.fromkeys(
        "abcd", 10
    )


def test_readers_see_a_batch_completely_or_not_at_all(ledger: Ledger, url: str) -> None:
    lease = ledger.claim(DEAD)
    stop = threading.Event()
    lengths: list[int] = []

    def read() -> None:
        with Ledger.open(url, "sweep") as other_ledger:
            while not stop.is_set():
                lengths.append(len(list(other_ledger.events())))

    reader = threading.Thread(target=read)
    reader.start()
    for batch in range(30):
        ledger.append(
            [log.measurement_event(1.0, "a", measurement(10 * batch + step)) for step in range(10)], lease
        )
    stop.set()
    reader.join()
    assert {length % 10 for length in lengths} == {0}


class TestLocations:
    """Locations that can contain a ledger, and locations that cannot."""

    @pytest.mark.parametrize(
        "bad_url",
        ["mysql://h/d", "/x.db", "sqlite:///:memory:", "sqlite:////x.db?mode=ro", "sqlite://bob:pw1@h/x.db"],
    )
    def test_other_databases_are_refused(self, bad_url: str) -> None:
        with pytest.raises(InputError) as raised:
            Ledger.open(bad_url, "sweep", create=True)
        assert "pw1" not in str(raised.value)

    def test_missing_file_is_not_created(self, url: str) -> None:
        with pytest.raises(StoreError, match=r"ledger.db"):
            Ledger.open(url, "sweep")
        assert not Path(url.removeprefix("sqlite:///")).exists()

    def test_error_about_an_unknown_sweep_names_the_known_sweeps(self, ledger: Ledger, url: str) -> None:
        with pytest.raises(StoreError, match=r"'swep'.*: sweep"):
            Ledger.open(url, "swep")

    def test_file_of_another_format_is_refused(self, url: str) -> None:
        Path(url.removeprefix("sqlite:///")).write_text(
            "not a database, but long enough to look like one" * 50
        )
        with pytest.raises(StoreError):
            Ledger.open(url, "sweep")

    def test_database_without_a_ledger_is_refused(self, url: str) -> None:
        execute(url, "CREATE TABLE mine (a INTEGER)")
        with pytest.raises(StoreError, match="'haltsweep_schema'"):
            Ledger.open(url, "sweep")

    @pytest.mark.parametrize(
        "code",
        [
            """CREATE VIEW haltsweep_events AS WITH RECURSIVE more(seq) AS
            (SELECT 1 UNION ALL SELECT seq + 1 FROM more) SELECT seq, 1 AS sweep_id FROM more""",
            "CREATE TRIGGER more AFTER UPDATE ON haltsweep_sweeps BEGIN DELETE FROM haltsweep_sweeps; END",
        ],
        ids=["endless-view", "trigger"],
    )
    def test_file_with_views_or_triggers_is_refused(self, code: str, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        Ledger.open(url, "sweep", create=True).close()
        if "VIEW" in code:
            execute(url, "DROP TABLE haltsweep_events")
        execute(url, code)
        for read in (lambda: Ledger.open(url, "sweep", create=True), lambda: read_summaries(url)):
            with pytest.raises(StoreError, match=r"'(haltsweep_events|more)'"):
                read()

    def test_newer_ledger_is_refused(self, ledger: Ledger, url: str) -> None:
        execute(url, f"UPDATE haltsweep_schema SET version = {SCHEMA_VERSION + 1}")
        with pytest.raises(StoreError, match=rf"version={SCHEMA_VERSION + 1} .*pip install --upgrade"):
            Ledger.open(url, "sweep", create=True)

    @pytest.mark.parametrize("kind", ["nfs4", "fuse.s3fs", "made-up-next-year"])
    def test_network_file_systems_are_refused(self, kind: str, tmp_path: Path) -> None:
        point = tmp_path / "net work"
        mounts = tmp_path / "mounts"
        escaped = str(point).replace(" ", "\\040")
        mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {escaped} {kind} rw 0 0\n")
        with pytest.raises(InputError, match=rf"{kind}.*--storage postgresql"):
            connect(f"sqlite:///{point / 'deep' / 'ledger.db'}", mounts)
        connect(f"sqlite:///{tmp_path / 'ledger.db'}", mounts)

    def test_file_system_without_locks_is_refused_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        require_locks(f"sqlite:///{tmp_path / 'deep' / 'ledger.db'}")
        monkeypatch.setattr("fcntl.lockf", refuse_locks)
        with pytest.raises(InputError, match="--storage postgresql"):
            require_locks(f"sqlite:///{tmp_path / 'deep' / 'ledger.db'}")
        require_locks("postgresql://somewhere/x")
        assert list(tmp_path.iterdir()) == []

    def test_postgresql_without_its_driver_raises_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
        with pytest.raises(InputError, match=r"pip install 'haltsweep\[postgres\]'"):
            Ledger.open("postgresql://nobody@localhost/none", "sweep")


class TestLease:
    """Fencing on both kinds of database; `test_ledger_lease.py` tests living and dead holders."""

    def test_newer_claim_fences_the_older_one(self, any_url: str) -> None:
        now = [1000.0]
        with Ledger.open(any_url, "sweep", create=True, clock=lambda: now[0]) as store:
            old_lease = store.claim(DEAD)
            now[0] += 61
            new_lease = store.claim(Holder.current())
            assert new_lease.token > old_lease.token
            for action in (
                lambda: store.append([log.start_event(1.0, "a", 1)], old_lease),
                lambda: store.renew(old_lease),
            ):
                with pytest.raises(LeaseLost, match=rf"{new_lease.token}.* {old_lease.token}"):
                    action()
            assert store.last_seq() == 0
            store.release(old_lease)
            assert store.is_held(), "releasing a lost lease must not free the newer one"
            store.append([log.start_event(1.0, "a", 1)], new_lease)

    def test_tokens_grow_over_releases(self, store: Ledger) -> None:
        tokens = []
        for _ in range(3):
            lease = store.claim(DEAD)
            tokens.append(lease.token)
            store.release(lease)
            assert store.lease() is None
            assert not store.is_held()
        assert tokens == sorted(set(tokens))
