"""Read an MLflow database by SQL, independent of MLflow and of the code under test."""

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StoredRun:
    """One run, without its random id."""

    name: str
    status: str
    start_ms: int
    end_ms: int | None
    tags: dict[str, str]
    """Tags; `mlflow.parentRunId` holds the key of the parent instead of its id."""
    params: dict[str, str]
    points: tuple[tuple[str, int, int, float], ...]
    """(metric, step, time in ms, value), sorted."""
    latest: dict[str, float]


def runs(file: Path, experiment: str) -> dict[str, StoredRun]:
    """Return active runs by `kind/arm/trial`. Fails if two runs share a key."""
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute(
            "SELECT run_uuid, r.name, status, start_time, end_time FROM runs r JOIN experiments e "
            "ON r.experiment_id = e.experiment_id WHERE e.name = ? AND r.lifecycle_stage = 'active'",
            (experiment,),
        ).fetchall()
        tags = {row[0]: _pairs(db, "tags", row[0]) for row in rows}
        keys = {run_id: _key(values) for run_id, values in tags.items()}
        repeated_keys = [key for key, count in Counter(keys.values()).items() if count > 1]
        assert not repeated_keys, f"more than one run of {repeated_keys}"
        for values in tags.values():
            if "mlflow.parentRunId" in values:
                values["mlflow.parentRunId"] = keys[values["mlflow.parentRunId"]]
        return {
            keys[run_id]: StoredRun(
                name,
                status,
                start,
                end,
                tags[run_id],
                _pairs(db, "params", run_id),
                _points(db, run_id),
                _pairs(db, "latest_metrics", run_id),
            )
            for run_id, name, status, start, end in rows
        }


def _key(tags: dict[str, str]) -> str:
    return "/".join(tags[f"haltsweep.{name}"] for name in ("kind", "arm", "trial"))


def _pairs(db: sqlite3.Connection, table: str, run_id: str) -> dict[str, Any]:
    return dict(db.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (run_id,)))


def _points(db: sqlite3.Connection, run_id: str) -> tuple[tuple[str, int, int, float], ...]:
    query = "SELECT key, step, timestamp, value FROM metrics WHERE run_uuid = ?"
    return tuple(sorted(db.execute(query, (run_id,))))
