"""Parquet files as a projection of the log: what notebooks and other tools read.

Measurements are cut into blocks of `BLOCK` positions of the log, one file a block. Only the newest block is
ever rewritten, so the cost of an update does not grow with the sweep, and no row can be in two files. Every
file is written elsewhere and renamed, and says in its metadata up to which position it was made.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder, canonical
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import Fold
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record
from trainables.protocol import Measurement

SCHEMA_VERSION = 1
BLOCK = 10_000
"""Positions of the log a measurements file covers."""
_VERSION, _POSITION = b"haltsweep.schema", b"haltsweep.position"

_METRICS = pa.map_(pa.string(), pa.float64())
_MEASURED = pa.struct([("step", pa.int64()), ("seconds", pa.float64()), ("metrics", _METRICS)])
RECORDS = pa.schema(
    [
        ("trial_id", pa.string()),
        ("sweep", pa.string()),
        ("arm", pa.string()),
        ("phase", pa.string()),
        ("number", pa.int64()),
        ("seed", pa.int64()),
        ("rank", pa.int64()),
        ("assignment", pa.string()),
        ("overrides", pa.string()),
        ("settings", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("last", _MEASURED),
        ("best", _MEASURED),
        ("started_at", pa.float64()),
        ("ended_at", pa.float64()),
        ("attempts", pa.int64()),
        ("provenance", pa.string()),
    ]
)
"""One row a trial. `assignment`, `overrides`, `settings`, `provenance` are JSON; times are Unix seconds."""
MEASUREMENTS = pa.schema(
    [
        ("trial_id", pa.dictionary(pa.int32(), pa.string())),
        ("step", pa.int64()),
        ("seconds", pa.float64()),
        ("at", pa.float64()),
        ("metric", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.float64()),
    ]
)
"""One row a trial, step and metric."""
_JSON = ("assignment", "overrides", "settings", "provenance")


class ParquetFiles:
    """The Parquet files of one sweep, brought up to date from its log."""

    def __init__(self, folder: SweepFolder, plan: Plan, ledger: Ledger) -> None:
        self._ledger = ledger
        self._folder = folder
        self._fold = Fold(plan)
        self._heard = 0
        self._block: list[tuple[Any, ...]] = []
        self._block_number = 0

    def update(self) -> int:
        """Write what happened since the files were made; how many files that took. Raises StoreError."""
        try:
            return self._update()
        except OSError as error:
            raise StoreError(
                f"the Parquet files in {str(self._folder.root)!r} could not be written ({error}); free space "
                "or make the folder writable, then run `haltsweep sync`: they are made from the ledger"
            ) from error

    def _update(self) -> int:
        written = 0
        for event in self._ledger.events(self._heard):
            assert event.seq is not None, "an event read from a ledger has a position"
            if event.seq // BLOCK != self._block_number:
                written += self._write_block()
                self._block_number, self._block = event.seq // BLOCK, []
            self._heard = event.seq
            self._fold.hear(event)
            if event.kind is EventKind.MEASURED:
                payload = event.payload
                for name, value in payload["metrics"].items():
                    self._block.append(
                        (event.trial_id, payload["step"], payload["seconds"], event.at, name, value)
                    )
        written += self._write_block()
        return written + self._write_records()

    def _write_block(self) -> int:
        file = self._folder.measurements / f"{self._block_number:06d}.parquet"
        # A block that ended before the newest event is complete at its last position.
        if not self._block or position(file) == self._heard:
            return 0
        columns = list(zip(*self._block, strict=True))
        arrays = [
            pa.array(column).cast(kind.type) for column, kind in zip(columns, MEASUREMENTS, strict=True)
        ]
        _write(pa.Table.from_arrays(arrays, schema=MEASUREMENTS), file, self._heard)
        return 1

    def _write_records(self) -> int:
        if position(self._folder.records) == self._heard:
            return 0
        rows = [to_row(record) for record in self._fold.records()]
        _write(pa.Table.from_pylist(rows, schema=RECORDS), self._folder.records, self._heard)
        return 1


def read_records(file: Path) -> list[Record]:
    """The records that were written. Raises StoreError if there is no such file, or of another version."""
    return [from_row(row) for row in _read(file).to_pylist(maps_as_pydicts="strict")]


def position(file: Path) -> int:
    """Up to which position of the log the file was made; -1 if it must be made again."""
    try:
        metadata = pq.read_schema(file).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return -1
    if metadata.get(_VERSION) != str(SCHEMA_VERSION).encode():
        return -1
    return int(metadata[_POSITION])


def to_row(record: Record) -> dict[str, Any]:
    """Column values of a record."""
    row = {name: getattr(record, name) for name in RECORDS.names}
    for name in _JSON:
        row[name] = canonical(row[name])
    row["outcome"] = record.outcome.value if record.outcome is not None else None
    for name in ("last", "best"):
        row[name] = _measured(row[name])
    return row


def from_row(row: Mapping[str, Any]) -> Record:
    """The record of a row."""
    values = dict(row)
    for name in _JSON:
        values[name] = json.loads(values[name])
    values["outcome"] = OutcomeKind(values["outcome"]) if values["outcome"] is not None else None
    for name in ("last", "best"):
        values[name] = Measurement(**values[name]) if values[name] is not None else None
    return Record(**values)


def _measured(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    return {
        "step": measurement.step,
        "seconds": measurement.seconds,
        "metrics": list(measurement.metrics.items()),
    }


def _read(file: Path) -> pa.Table:
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"{str(file)!r} must be a Parquet file of haltsweep ({error}); make it with `haltsweep sync`"
        ) from error
    version = (table.schema.metadata or {}).get(_VERSION, b"").decode()
    if version != str(SCHEMA_VERSION):
        raise StoreError(
            f"{str(file)!r} must have schema version {SCHEMA_VERSION}, got {version!r}; "
            "make it again with `haltsweep sync`"
        )
    return table


def _write(table: pa.Table, file: Path, up_to: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    metadata = {_VERSION: str(SCHEMA_VERSION), _POSITION: str(up_to)}
    try:
        pq.write_table(table.replace_schema_metadata(metadata), fresh, compression="zstd")
        with fresh.open("rb") as stream:
            os.fsync(stream.fileno())
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
