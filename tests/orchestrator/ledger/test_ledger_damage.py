"""Damage of a ledger by a disk, a person or another program is named, and damaged events are never used."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.sql.schema import SCHEMA_VERSION
from orchestrator.ledger.store import Ledger
from orchestrator.ledger.summary import read_summaries
from orchestrator.trials import Outcome, OutcomeKind
from tests.orchestrator.ledger.conftest import execute
from tests.support.specs.plans import make_plan
from tests.support.stores import ledger_flips as flips
from tests.support.sweeps.histories import DEAD, history

SWEEP = "sweep"


@pytest.fixture
def written_events(any_url: str) -> list[Event]:
    """Write a ledger of a whole sweep, and release it."""
    with Ledger.open(any_url, SWEEP, create=True) as ledger:
        lease = ledger.claim(DEAD)
        ledger.append(list(history(make_plan(3), seed=1)), lease)
        ledger.release(lease)
        return list(ledger.events())


def read_refused(url: str, match: str) -> list[str]:
    """Assert that reading the ledger raises an error; return all faults that `verify` finds."""
    with Ledger.open(url, SWEEP) as ledger:
        with pytest.raises(StoreError, match=match):
            list(ledger.events())
        return list(map(str, ledger.verify()))


@pytest.mark.parametrize(
    "change",
    [
        "at = at + 0.001",
        "trial_id = 'somebody'",
        "payload = payload || ' '",
        "outcome = 'crashed'",
        "digest = 'abc'",
    ],
)
def test_changed_row_is_named(any_url: str, written_events: list[Event], change: str) -> None:
    with Ledger.open(any_url, SWEEP) as ledger:
        assert ledger.verify() == []
    end = next(event for event in written_events if event.kind is EventKind.ENDED)
    execute(any_url, f"UPDATE haltsweep_events SET {change} WHERE seq = {end.seq}")
    faults = read_refused(any_url, rf"event {end.seq} \(ended, ")
    assert 1 <= len(faults) <= 2, "later events must be sound, except for a broken link"
    assert f"event {end.seq} (ended" in faults[0]


def test_missing_row_is_named(any_url: str, written_events: list[Event]) -> None:
    execute(any_url, "DELETE FROM haltsweep_events WHERE seq IN (5, 6)")
    (fault,) = read_refused(any_url, r"event 7 \(.* event 4")
    assert "event 4" in fault


def test_inserted_row_is_named(any_url: str, written_events: list[Event]) -> None:
    columns = "sweep_id, kind, at, payload, digest"
    execute(
        any_url,
        f"INSERT INTO haltsweep_events ({columns}, seq) "
        f"SELECT {columns}, {len(written_events) + 1} FROM haltsweep_events WHERE seq = 1",
    )
    faults = read_refused(any_url, rf"event {len(written_events) + 1} \(opened\)")
    assert f"event {len(written_events)}" in faults[-1]


def test_missing_end_of_the_log_is_named(any_url: str, written_events: list[Event]) -> None:
    last_seq = len(written_events)
    execute(any_url, f"DELETE FROM haltsweep_events WHERE seq > {last_seq - 3}")
    (fault,) = read_refused(any_url, f"events {last_seq - 2} to {last_seq} ")
    assert f"events {last_seq - 2} to {last_seq}" in fault


def test_projection_finds_damage_before_its_position(any_url: str, written_events: list[Event]) -> None:
    execute(any_url, "UPDATE haltsweep_events SET at = 1.0 WHERE seq = 9")
    with Ledger.open(any_url, SWEEP) as ledger:
        with pytest.raises(StoreError, match="event 9 "):
            list(ledger.events(after_seq=8))
        assert len(list(ledger.events(after_seq=9))) == len(written_events) - 9


@pytest.mark.parametrize("change", ["last_seq = 3", "token = token + 1", "holder = 'x'"])
def test_changed_row_of_the_sweep_is_named(any_url: str, written_events: list[Event], change: str) -> None:
    execute(any_url, f"UPDATE haltsweep_sweeps SET {change}")
    faults = read_refused(any_url, "'sweep'")
    assert len(faults) == 1
    with Ledger.open(any_url, SWEEP) as ledger, pytest.raises(StoreError, match="'sweep'"):
        ledger.claim(Holder.current())


def test_sweep_that_lost_its_name_is_not_started_again(any_url: str, written_events: list[Event]) -> None:
    execute(any_url, "UPDATE haltsweep_sweeps SET name = 'sweeq'")
    with pytest.raises(StoreError, match="'sweeq'"):
        Ledger.open(any_url, SWEEP, create=True)


def test_sweep_that_lost_its_row_is_not_started_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Ledger.open(url, SWEEP, create=True) as ledger:
        ledger.append([log.release_event(1.0, "done")], ledger.claim(DEAD))
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        database.execute("DELETE FROM haltsweep_sweeps")
        database.commit()
    with pytest.raises(StoreError, match=" 1 "):
        Ledger.open(url, SWEEP, create=True)


@pytest.fixture(scope="module")
def sound_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object, Lease]:
    file = tmp_path_factory.mktemp("flips") / "sound.db"
    lease = flips.create_ledger(file)
    return file, flips.content(file), lease


@pytest.mark.parametrize("seed", [0, 1, 314, 324, 638, 754])
def test_flipped_bit_is_harmless_or_refused(
    sound_ledger: tuple[Path, object, Lease], tmp_path: Path, seed: int
) -> None:
    """For more seeds run `python -m tests.support.stores.ledger_flips --seeds 1000`."""
    file, expected, lease = sound_ledger
    copy = tmp_path / "ledger.db"
    position = flips.flip(file, copy, seed)
    assert flips.classify_flip(copy, expected, lease) in {"harmless", "refused"}, position


def test_ledger_of_version_2_is_upgraded_for_retries(any_url: str) -> None:
    crashed = Outcome(OutcomeKind.CRASHED, "a mistake")
    with Ledger.open(any_url, SWEEP, create=True) as ledger:
        lease = ledger.claim(DEAD)
        ledger.append([log.end_event(1.0, "a", crashed)], lease)
        ledger.release(lease)
    execute(
        any_url,
        "DROP INDEX haltsweep_ends_of_trials",
        "CREATE UNIQUE INDEX haltsweep_one_end_a_trial ON haltsweep_events (sweep_id, trial_id) "
        "WHERE outcome IS NOT NULL",
        "DROP INDEX haltsweep_retries_of_trials",
        "UPDATE haltsweep_schema SET version = 2",
    )
    (summary,) = read_summaries(any_url)
    assert summary.ended == {OutcomeKind.CRASHED: 1}, "reading must not need an upgrade"
    with Ledger.open(any_url, SWEEP) as ledger:
        retry_events = [log.retry_event(2.0, "a", -1), log.end_event(3.0, "a", crashed)]
        ledger.append(retry_events, ledger.claim(DEAD))
        assert ledger.verify() == []


def test_ledger_of_version_1_is_refused_and_unchanged(any_url: str, written_events: list[Event]) -> None:
    execute(any_url, "UPDATE haltsweep_schema SET version = 1")
    with pytest.raises(StoreError, match="version=1"):
        Ledger.open(any_url, SWEEP, create=True)
    execute(any_url, f"UPDATE haltsweep_schema SET version = {SCHEMA_VERSION}")
    with Ledger.open(any_url, SWEEP) as ledger:
        assert list(ledger.events()) == written_events
