"""Parquet says what the ledger says, and is cheap to keep up to date."""

import json
import os
from collections.abc import Callable
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
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking import parquet
from orchestrator.tracking.parquet import ParquetFiles, check_files, read_records
from orchestrator.tracking.projections import Projections
from tests.support.sweeps.histories import DEAD, history


@pytest.fixture
def lease(ledger: Ledger) -> Lease:
    return ledger.claim(DEAD)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BLOCK", 16)


def rows(folder: SweepFolder) -> list[tuple[Any, ...]]:
    table = pq.read_table(folder.measurements)
    return sorted(tuple(row.values()) for row in table.to_pylist())


def expected(events: list[Event]) -> list[tuple[Any, ...]]:
    return sorted(
        (event.trial_id, event.payload["step"], event.payload["seconds"], event.at, name, value)
        for event in events
        if event.kind == "measured"
        for name, value in event.payload["metrics"].items()
    )


def test_records_survive(folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan) -> None:
    ledger.append(list(history(plan, 1))[:-3], lease)
    assert ParquetFiles(folder, plan, ledger).update() == 2
    assert read_records(folder) == records(ledger.events(), plan)
    assert any(record.outcome is None for record in read_records(folder))


def test_lists_of_packages_and_changes_of_the_code_are_not_in_every_row(plan: Plan) -> None:
    long = {"packages": ["numpy==2.1"], "code_diff": "+x"}
    record = replace(records(history(plan, 1), plan)[0], provenance={"commit": "c0ffee", **long})
    assert json.loads(parquet.to_row(record)["provenance"]) == {"commit": "c0ffee"}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("keep", [True, False])
def test_bit_by_bit_is_the_same_as_at_once(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan, keep: bool, tmp_path: Path
) -> None:
    events = list(history(plan, 2))
    files = ParquetFiles(folder, plan, ledger)
    for at in range(0, len(events), 7):
        ledger.append(events[at : at + 7], lease)
        files = files if keep else ParquetFiles(folder, plan, ledger)
        files.update()
        assert rows(folder) == expected(list(ledger.events())), "every row once, at every moment"
        assert read_records(folder) == records(ledger.events(), plan)
    assert len(list(folder.measurements.iterdir())) > 2
    found = measurements(ledger.events())
    assert sum(len(one.metrics) for some in found.values() for one in some) == len(rows(folder))


@pytest.mark.usefixtures("small_blocks")
def test_a_second_update_writes_nothing(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    ledger.append(list(history(plan, 2)), lease)
    files = ParquetFiles(folder, plan, ledger)
    assert files.update() > 2
    before = {file: file.stat().st_mtime_ns for file in folder.root.rglob("*.parquet")}
    assert files.update() == 0
    assert ParquetFiles(folder, plan, ledger).update() == 0
    assert {file: file.stat().st_mtime_ns for file in folder.root.rglob("*.parquet")} == before


@pytest.mark.usefixtures("small_blocks")
def test_only_the_newest_block_is_rewritten(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    events = list(history(plan, 2))
    ledger.append(events[:40], lease)
    files = ParquetFiles(folder, plan, ledger)
    files.update()
    old = {file: file.stat().st_mtime_ns for file in sorted(folder.measurements.iterdir())[:-1]}
    ledger.append(events[40:], lease)
    files.update()
    assert old
    assert all(file.stat().st_mtime_ns == at for file, at in old.items())


def _torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:50])


def _other_version(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(
        table.replace_schema_metadata({"haltsweep.schema": "99", "haltsweep.position": "10000"}), file
    )


@pytest.mark.parametrize("harm", [Path.unlink, _torn, _other_version])
def test_missing_and_damaged_files_are_written_again(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan, harm: Callable[[Path], None]
) -> None:
    ledger.append(list(history(plan, 2)), lease)
    ParquetFiles(folder, plan, ledger).update()
    for file in list(folder.root.rglob("*.parquet")):
        harm(file)
    assert ParquetFiles(folder, plan, ledger).update() == 2
    assert rows(folder) == expected(list(ledger.events()))
    assert read_records(folder) == records(ledger.events(), plan)


@pytest.mark.usefixtures("small_blocks")
def test_files_of_events_that_the_ledger_has_no_more_are_deleted(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    """As after a ledger was restored from a backup."""
    ledger.append(list(history(plan, 2)), lease)
    ParquetFiles(folder, plan, ledger).update()
    later = folder.measurements / "000099.parquet"
    Projections(folder).put(later, folder.records.read_bytes())
    assert ParquetFiles(folder, plan, ledger).update() == 1
    assert not later.exists()
    assert rows(folder) == expected(list(ledger.events()))


def test_unfinished_files_of_a_killed_writer_are_deleted(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    folder.measurements.mkdir()
    left = [folder.root / ".records.parquet.7-ab", folder.measurements / ".000000.parquet.7-ab"]
    for file in [*left, folder.root / ".projections.json.7-ab"]:
        file.write_bytes(b"half")
    ledger.append(list(history(plan)), lease)
    ParquetFiles(folder, plan, ledger).update()
    assert not list(folder.root.rglob(".*-ab"))


@pytest.mark.usefixtures("small_blocks")
def test_sound_files_pass_and_others_are_named(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    events = list(history(plan, 2))
    assert check_files(folder, plan, ledger) == {}
    ledger.append(events[:40], lease)
    ParquetFiles(folder, plan, ledger).update()
    ledger.append(events[40:], lease)
    assert set(check_files(folder, plan, ledger).values()) == {""}, "behind is not wrong"
    first, second, *_ = sorted(folder.measurements.iterdir())
    table = pq.read_table(first)
    Projections(folder).put(first, _parquet(table.set_column(1, "step", pa.array([1] * len(table)))))
    second.write_bytes(b"else")
    Projections(folder).put(folder.measurements / "000099.parquet", folder.records.read_bytes())
    found = check_files(folder, plan, ledger)
    assert found.pop(first) == "its rows differ from the ledger"
    assert "was changed or damaged since" in found.pop(second)
    assert found.pop(folder.measurements / "000099.parquet") == "it has rows that are not in the ledger"
    assert set(found.values()) == {""}


def test_a_file_of_another_pyarrow_is_compared_by_its_rows(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    ledger.append(list(history(plan, 2)), lease)
    ParquetFiles(folder, plan, ledger).update()
    for file in (folder.records, *folder.measurements.iterdir()):
        Projections(folder).put(file, _parquet(pq.read_table(file)))
    assert set(check_files(folder, plan, ledger).values()) == {""}


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def test_a_file_without_records_is_refused(folder: SweepFolder) -> None:
    with pytest.raises(StoreError, match="`haltsweep sync`"):
        read_records(folder)
    Projections(folder).put(folder.records, _parquet(pa.table({"a": [1]})))
    with pytest.raises(StoreError, match="`haltsweep sync`"):
        read_records(folder)


def test_a_folder_that_cannot_be_written_says_what_to_do(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan
) -> None:
    ledger.append(list(history(plan, 2)), lease)
    folder.measurements.write_text("in the way")
    files = ParquetFiles(folder, plan, ledger)
    with pytest.raises(StoreError, match="`haltsweep sync`"):
        files.update()
    folder.measurements.unlink()
    files.update()
    assert rows(folder) == expected(list(ledger.events())), "what failed is written later"


def test_a_full_disk_leaves_no_partial_files(
    folder: SweepFolder, ledger: Ledger, lease: Lease, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(list(history(plan, 2)), lease)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        ParquetFiles(folder, plan, ledger).update()
    assert list(folder.measurements.iterdir()) == []
