"""Write Parquet files as a projection of the log, for notebooks and other tools.

Measurements are split into blocks of `BLOCK` positions of the log, with one file per block. Only the newest
block is rewritten. So the cost of a write does not grow with the sweep, and no row can be in two files. Every
file is created from the ledger, and replaced only if its content changed. Its metadata contain the position
of the newest event in it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import StoreError
from orchestrator.files.disk_errors import disk_remedy
from orchestrator.identity import SweepFolder, canonical
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.fold import RecordBuilder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.projections import Projections, read_sound
from orchestrator.trials import Record
from trainables.protocol import Measurement

SCHEMA_VERSION = 1
BLOCK = 10_000
"""Number of positions of the log in a measurements file."""
_VERSION, POSITION = b"haltsweep.schema", b"haltsweep.position"

_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_MEASURED = pa.struct([("step", _INT), ("seconds", _FLOAT), ("metrics", pa.map_(_TEXT, _FLOAT))])
JSON_COLUMNS = ("assignment", "overrides", "settings", "provenance")
RECORDS = pa.schema(
    [
        *(("trial_id", _TEXT), ("sweep", _TEXT), ("arm", _TEXT), ("phase", _TEXT)),
        *(("number", _INT), ("seed", _INT), ("rank", _INT)),
        *(("assignment", _TEXT), ("overrides", _TEXT), ("settings", _TEXT)),
        *(("outcome", _TEXT), ("reason", _TEXT), ("last", _MEASURED), ("best", _MEASURED)),
        *(("started_at", _FLOAT), ("ended_at", _FLOAT), ("attempts", _INT), ("provenance", _TEXT)),
    ]
)
"""Schema of the records, one row per trial.

The columns `JSON_COLUMNS` are JSON; times are Unix seconds.
"""
REPEAT = pa.field("repeat", _INT)
"""Additional column of `RECORDS` in sweeps with repeated searches."""
_ENCODED = pa.dictionary(pa.int32(), _TEXT)
MEASUREMENTS = pa.schema(
    [
        *(("trial_id", _ENCODED), ("step", _INT), ("seconds", _FLOAT), ("at", _FLOAT)),
        *(("metric", _ENCODED), ("value", _FLOAT)),
    ]
)
"""Schema of the measurements, one row per trial, step and metric.

A retried trial may have several rows for a step: the newest `at` counts.
"""
_LONG = frozenset({"packages", "code_diff"})


class ParquetFiles:
    """Parquet files of one sweep, brought up to date from its log."""

    def __init__(self, folder: SweepFolder, plan: Plan, ledger: Ledger) -> None:
        self._ledger = ledger
        self._folder = folder
        self._tables = Tables(folder, plan)
        self._done = -1
        self._made: set[Path] = set()

    def update(self) -> int:
        """Write the events since the last call; return the number of written files. Raise `StoreError`."""
        try:
            return self._update()
        except OSError as error:
            raise StoreError(
                f"the Parquet files in {str(self._folder.root)!r} could not be written ({error}); "
                f"{disk_remedy(error)}, then run `haltsweep sync`: they are made from the ledger"
            ) from error

    def _update(self) -> int:
        if self._ledger.last_seq() == self._done:
            return 0
        projections = Projections(self._folder)
        num_written = 0
        for event in self._ledger.events(self._tables.position):
            if self._tables.begins_block(event):
                num_written += self._put(projections, self._tables.measurements())
            self._tables.apply(event)
        num_written += self._put(projections, self._tables.measurements())
        num_written += self._put(projections, self._tables.records())
        self._done = self._tables.position
        return num_written + projections.drop_others(self._made)

    def _put(self, projections: Projections, table_file: "TableFile | None") -> int:
        if table_file is None:
            return 0
        content = table_file.encoded()
        self._made.add(table_file.file)
        if projections.holds(table_file.file, content):
            return 0
        projections.put(table_file.file, content)
        return 1


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table created from the ledger, with the path of its file."""

    file: Path
    table: pa.Table
    last_position: int

    def encoded(self) -> bytes:
        """Return the bytes of the file, which are always the same for the same version of pyarrow."""
        metadata = {_VERSION: str(SCHEMA_VERSION), POSITION: str(self.last_position)}
        sink = pa.BufferOutputStream()
        table = self.table.replace_schema_metadata(metadata)
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        return bytes(sink.getvalue())


class Tables:
    """Tables of a sweep, updated event by event."""

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self._folder = folder
        self._fold = RecordBuilder(plan)
        self._block: list[tuple[Any, ...]] = []
        self._block_number = 0
        self.position = 0
        """Position in the ledger of the newest event that was written to the tables."""

    def begins_block(self, event: Event) -> bool:
        """Return whether this event begins a new measurements file."""
        assert event.seq is not None, "an event read from a ledger has a position"
        return event.seq // BLOCK != self._block_number

    def apply(self, event: Event) -> None:
        """Add the next event."""
        if self.begins_block(event):
            self._block = []
        assert event.seq is not None
        self._block_number, self.position = event.seq // BLOCK, event.seq
        self._fold.apply(event)
        if event.kind is EventKind.MEASURED:
            report = (event.trial_id, event.payload["step"], event.payload["seconds"], event.at)
            self._block += [(*report, *metric) for metric in event.payload["metrics"].items()]

    def measurements(self) -> TableFile | None:
        """Return the newest block of measurements; None if it is empty."""
        if not self._block:
            return None
        columns = zip(zip(*self._block, strict=True), MEASUREMENTS, strict=True)
        arrays = [pa.array(values).cast(field.type) for values, field in columns]
        file = self._folder.measurements / f"{self._block_number:06d}.parquet"
        return TableFile(file, pa.Table.from_arrays(arrays, schema=MEASUREMENTS), self.position)

    def records(self) -> TableFile:
        """Return the table of records, one row per trial."""
        records = self._fold.records()
        rows = [to_row(record) | {"repeat": record.repeat} for record in records]
        schema = RECORDS.append(REPEAT) if any(record.repeat for record in records) else RECORDS
        return TableFile(self._folder.records, pa.Table.from_pylist(rows, schema=schema), self.position)


def to_row(record: Record) -> dict[str, Any]:
    """Return the column values of a record."""
    row = {name: getattr(record, name) for name in RECORDS.names}
    # Long values that are the same in all rows of a session; provenance.json and the ledger have them.
    row["provenance"] = {name: value for name, value in record.provenance.items() if name not in _LONG}
    row |= {name: canonical(row[name]) for name in JSON_COLUMNS}
    row["outcome"] = record.outcome.value if record.outcome is not None else None
    return row | {name: _measured_columns(row[name]) for name in ("last", "best")}


def _measured_columns(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    step, seconds = measurement.step, measurement.seconds
    return {"step": step, "seconds": seconds, "metrics": list(measurement.metrics.items())}


def _read_file(folder: SweepFolder, file: Path) -> tuple[int, bytes]:
    """Return the position of a file in the log, and its content. Raise `StoreError` for a foreign file."""
    try:
        content = read_sound(folder, file)
        metadata = pq.read_metadata(pa.BufferReader(content)).metadata or {}
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"{str(file)!r} must be a Parquet file of haltsweep ({error}); make it with `haltsweep sync`"
        ) from error
    version = metadata.get(_VERSION, b"").decode()
    if version != str(SCHEMA_VERSION):
        raise StoreError(
            f"{str(file)!r} must have schema version {SCHEMA_VERSION}, got {version!r}; "
            "make it again with `haltsweep sync`"
        )
    return int(metadata[POSITION]), content


def _has_table(content: bytes, table_file: TableFile) -> bool:
    """Return whether a file contains the table from the ledger.

    The bytes may differ, since other versions of pyarrow encode tables in another way.
    """
    if content == table_file.encoded():
        return True
    try:
        table = pq.read_table(pa.BufferReader(content)).replace_schema_metadata(None)
    except (OSError, pa.ArrowInvalid):
        return False
    expected = table_file.table
    # pyarrow treats NaN as unequal to NaN.
    return bool(table.equals(expected)) or repr(table.to_pylist()) == repr(expected.to_pylist())


def check_files(folder: SweepFolder, plan: Plan, ledger: Ledger) -> dict[Path, str]:
    """Return the fault of each existing Parquet file; an empty text for an intact file.

    A file created from only the first events of the log is intact.
    """
    files = [*sorted(folder.measurements.glob("*.parquet")), *[folder.records] * folder.records.exists()]
    faults: dict[Path, str] = {}
    contents: dict[Path, tuple[int, bytes]] = {}
    for file in files:
        try:
            contents[file] = _read_file(folder, file)
        except StoreError as error:
            faults[file] = str(error)
    faults |= dict.fromkeys(contents, "it has rows that are not in the ledger")
    due = sorted({position for position, _ in contents.values()}, reverse=True)
    expected = Tables(folder, plan)

    def compare() -> None:
        for table_file in (expected.measurements(), expected.records()):
            position, content = contents.get(table_file.file, (-1, b"")) if table_file else (-1, b"")
            if table_file and position == expected.position:
                is_equal = _has_table(content, table_file)
                faults[table_file.file] = "" if is_equal else "its rows differ from the ledger"

    for event in ledger.events():
        while due and event.seq is not None and due[-1] < event.seq:
            due.pop()
            compare()
        expected.apply(event)
    compare()
    return faults
