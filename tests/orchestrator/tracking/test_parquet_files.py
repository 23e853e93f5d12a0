"""Parquet files equal the ledger, and updates write little."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event
from orchestrator.ledger.fold import measurements, records
from orchestrator.tracking import parquet
from orchestrator.tracking.parquet import ParquetFiles, check_files
from orchestrator.tracking.projections import Projections
from tests.support.stores.parquet_records import read_records
from tests.support.sweeps.histories import DEAD, history


@pytest.fixture
def lease(ledger):
    return ledger.claim(DEAD)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(parquet, "BLOCK", 16)


def read_rows(folder: SweepFolder) -> list[tuple[Any, ...]]:
    table = pq.read_table(folder.measurements)
    return sorted(tuple(row.values()) for row in table.to_pylist())


def expected_rows(events: list[Event]) -> list[tuple[Any, ...]]:
    return sorted(
        (event.trial_id, event.payload["step"], event.payload["seconds"], event.at, name, value)
        for event in events
        if event.kind == "measured"
        for name, value in event.payload["metrics"].items()
    )


def test_packages_and_code_diff_are_omitted_from_rows(plan):
    long_fields = {"packages": ["numpy==2.1"], "code_diff": "+x"}
    record = replace(records(history(plan, 1), plan)[0], provenance={"commit": "c0ffee", **long_fields})
    assert json.loads(parquet.to_row(record)["provenance"]) == {"commit": "c0ffee"}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("has_one_writer", [True, False])
def test_updates_in_parts_equal_an_update_at_once(folder, ledger, lease, plan, has_one_writer, tmp_path):
    events = list(history(plan, 2))
    files = ParquetFiles(folder, plan, ledger)
    for position in range(0, len(events), 7):
        ledger.append(events[position : position + 7], lease)
        files = files if has_one_writer else ParquetFiles(folder, plan, ledger)
        files.update()
        assert read_rows(folder) == expected_rows(list(ledger.events())), (
            "every row must exist once after each update"
        )
        assert read_records(folder) == records(ledger.events(), plan)
    assert len(list(folder.measurements.iterdir())) > 2
    by_trial = measurements(ledger.events())
    assert sum(len(item.metrics) for items in by_trial.values() for item in items) == len(read_rows(folder))


@pytest.mark.usefixtures("small_blocks")
def test_second_update_writes_nothing(folder, ledger, lease, plan):
    ledger.append(list(history(plan, 2)), lease)
    files = ParquetFiles(folder, plan, ledger)
    assert files.update() > 2
    times = {file: file.stat().st_mtime_ns for file in folder.root.rglob("*.parquet")}
    assert files.update() == 0
    assert ParquetFiles(folder, plan, ledger).update() == 0
    assert {file: file.stat().st_mtime_ns for file in folder.root.rglob("*.parquet")} == times


def _tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:50])


@pytest.mark.parametrize("damage", [Path.unlink, _tear])
def test_missing_and_damaged_files_are_rewritten(folder, ledger, lease, plan, damage):
    ledger.append(list(history(plan, 2)), lease)
    ParquetFiles(folder, plan, ledger).update()
    for file in list(folder.root.rglob("*.parquet")):
        damage(file)
    assert ParquetFiles(folder, plan, ledger).update() == 2
    assert read_rows(folder) == expected_rows(list(ledger.events()))
    assert read_records(folder) == records(ledger.events(), plan)


@pytest.mark.usefixtures("small_blocks")
def test_files_of_events_that_the_ledger_lost_are_deleted(folder, ledger, lease, plan):
    """A ledger that is restored from a backup may lack events."""
    ledger.append(list(history(plan, 2)), lease)
    ParquetFiles(folder, plan, ledger).update()
    later = folder.measurements / "000099.parquet"
    Projections(folder).put(later, folder.records.read_bytes())
    assert ParquetFiles(folder, plan, ledger).update() == 1
    assert not later.exists()
    assert read_rows(folder) == expected_rows(list(ledger.events()))


def test_unfinished_files_of_a_killed_writer_are_deleted(folder, ledger, lease, plan):
    folder.measurements.mkdir()
    unfinished = [folder.root / ".records.parquet.7-ab", folder.measurements / ".000000.parquet.7-ab"]
    for file in [*unfinished, folder.root / ".projections.json.7-ab"]:
        file.write_bytes(b"unfinished")
    ledger.append(list(history(plan)), lease)
    ParquetFiles(folder, plan, ledger).update()
    assert not list(folder.root.rglob(".*-ab"))


@pytest.mark.usefixtures("small_blocks")
def test_check_accepts_sound_files_and_names_others(folder, ledger, lease, plan):
    events = list(history(plan, 2))
    assert check_files(folder, plan, ledger) == {}
    ledger.append(events[:40], lease)
    ParquetFiles(folder, plan, ledger).update()
    ledger.append(events[40:], lease)
    assert set(check_files(folder, plan, ledger).values()) == {""}, "an old file must not count as wrong"
    first_file, second_file, *_ = sorted(folder.measurements.iterdir())
    table = pq.read_table(first_file)
    Projections(folder).put(first_file, _to_parquet(table.set_column(1, "step", pa.array([1] * len(table)))))
    second_file.write_bytes(b"else")
    Projections(folder).put(folder.measurements / "000099.parquet", folder.records.read_bytes())
    faulty_files = {file for file, problem in check_files(folder, plan, ledger).items() if problem}
    assert faulty_files == {first_file, second_file, folder.measurements / "000099.parquet"}


def _to_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def test_check_names_a_file_of_another_version(folder, ledger, plan):
    Projections(folder).put(folder.records, _to_parquet(pa.table({"a": [1]})))
    assert "1, got ''" in check_files(folder, plan, ledger)[folder.records]


def test_full_disk_leaves_no_partial_files(folder, ledger, lease, plan, monkeypatch):
    ledger.append(list(history(plan, 2)), lease)

    def fail_with_full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_with_full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        ParquetFiles(folder, plan, ledger).update()
    assert list(folder.measurements.iterdir()) == []
