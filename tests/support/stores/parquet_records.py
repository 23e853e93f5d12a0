"""Read the records that a sweep has written as Parquet."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.identity import SweepFolder
from orchestrator.tracking.parquet import JSON_COLUMNS
from orchestrator.tracking.projections import read_sound
from orchestrator.trials import OutcomeKind, Record
from trainables.protocol import Measurement


def read_records(folder: SweepFolder) -> list[Record]:
    """Return the written records. Raise `OSError` or `StoreError` if they are missing or damaged."""
    table = pq.read_table(pa.BufferReader(read_sound(folder, folder.records)))
    return [_from_row(row) for row in table.to_pylist(maps_as_pydicts="strict")]


def _from_row(row: Mapping[str, Any]) -> Record:
    values = {**row, **{name: json.loads(row[name]) for name in JSON_COLUMNS}}
    values["outcome"] = OutcomeKind(row["outcome"]) if row["outcome"] is not None else None
    for name in ("last", "best"):
        values[name] = Measurement(**row[name]) if row[name] is not None else None
    return Record(**values)
