"""Create flat tables of trials and measurements for people, with one column per field and metric.

The Parquet files are for programs: their schema is the same for every sweep.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from orchestrator.identity import canonical
from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.plan.types import Plan
from orchestrator.trials import Record

MOMENT = pa.timestamp("us", tz="UTC")
_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_TRIAL = [
    *(("trial_id", _TEXT), ("arm", _TEXT), ("phase", _TEXT)),
    *(("number", _INT), ("repeat", _INT), ("seed", _INT)),
]
TRIALS = pa.schema(
    [
        *_TRIAL,
        *(("rank", _INT), ("outcome", _TEXT), ("reason", _TEXT), ("attempts", _INT)),
        *(("started_at", MOMENT), ("ended_at", MOMENT)),
        *(("commit", _TEXT), ("code", _TEXT), ("host", _TEXT), ("settings", _TEXT)),
        *(("step", _INT), ("seconds", _FLOAT)),
    ]
)
"""Columns of every sweep; columns for fields and metrics of the sweep follow."""
MEASURED = pa.schema(
    [*_TRIAL, *(("step", _INT), ("seconds", _FLOAT), ("at", MOMENT), ("metric", _TEXT), ("value", _FLOAT))]
)


def trials_table(records: Sequence[Record], plan: Plan | None = None) -> pa.Table:
    """Return one row per record.

    Columns `assignment.<path>`, `overrides.<path>`, `attribute.<name>` and `metric.<name>` follow `TRIALS`.
    `counted.<metric>` follows if an objective of `plan` has another scope than the last report.
    """
    table = pa.Table.from_pylist([_fixed_columns(record) for record in records], schema=TRIALS)
    objectives = plan.search.objectives if plan is not None and plan.search is not None else ()
    counted = [objective.metric for objective in objectives if objective.scope != "last"]
    for prefix, mappings, kind, names in (
        ("assignment", [record.assignment for record in records], None, None),
        ("overrides", [record.overrides for record in records], None, None),
        ("attribute", [record.attributes for record in records], _TEXT, None),
        ("metric", [record.last.metrics if record.last else {} for record in records], _FLOAT, None),
        ("counted", [record.judged.metrics if record.judged else {} for record in records], _FLOAT, counted),
    ):
        for name in sorted({name for each in mappings for name in each}) if names is None else names:
            values = [each.get(name) for each in mappings]
            column = _column(values) if kind is None else pa.array(values, kind)
            table = table.append_column(f"{prefix}.{name}", column)
    return table


def measurements_table(events: Iterable[Event], plan: Plan) -> pa.Table:
    """Return one row per trial, step and metric in the log."""
    trials = {trial.trial_id: trial for trial in plan.trials}
    columns: dict[str, list[Any]] = {name: [] for name in MEASURED.names}
    for event in events:
        if event.kind is EventKind.RETRIED:
            _drop_retried(columns, event)
        if (
            event.kind is EventKind.PARAMS_ASSIGNED and event.trial_id not in trials
        ):  # replaces an infeasible trial
            trial = trial_from_json(event.payload).planned
            trials[trial.trial_id] = trial
        if event.kind is not EventKind.MEASURED:
            continue
        assert event.trial_id is not None, "a measurement belongs to a trial"
        trial, at = trials[event.trial_id], _moment(event.at)
        for name, value in event.payload["metrics"].items():
            identity = (trial.trial_id, trial.arm, trial.phase, trial.number, trial.repeat, trial.seed)
            reported = (event.payload["step"], event.payload["seconds"], at, name, value)
            for column, cell in zip(columns.values(), (*identity, *reported), strict=True):
                column.append(cell)
    return pa.Table.from_pydict(columns, schema=MEASURED)


def _drop_retried(columns: dict[str, list[Any]], retried: Event) -> None:
    """Remove measurements of a retried trial after the checkpoint from which it resumes."""
    last_step = retried.payload.get("step", -1)
    rows = [
        row
        for row in zip(*columns.values(), strict=True)
        if row[0] != retried.trial_id or row[MEASURED.names.index("step")] <= last_step
    ]
    for place, column in enumerate(columns.values()):
        column[:] = [row[place] for row in rows]


def _fixed_columns(record: Record) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in TRIALS.names if hasattr(record, name)}
    made_with = record.provenance
    return row | {
        "outcome": record.outcome.value if record.outcome is not None else None,
        "started_at": _moment(record.started_at),
        "ended_at": _moment(record.ended_at),
        "commit": made_with.get("commit"),
        "code": made_with.get("code"),
        "host": made_with.get("host"),
        "settings": canonical(record.settings),
        "step": record.last.step if record.last else None,
        "seconds": record.last.seconds if record.last else None,
    }


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _column(values: Sequence[Any]) -> pa.Array:
    """Return a column of one type, or of JSON strings if the values have several types."""
    kinds = {type(value) for value in values if value is not None}
    known = ({bool}, pa.bool_()), ({int}, _INT), ({int, float}, _FLOAT), ({str}, _TEXT)
    for allowed, kind in known:
        if kinds <= allowed:
            return pa.array(values, kind)
    return pa.array([None if value is None else _json(value) for value in values], _TEXT)


def _json(value: Any) -> str:
    return canonical(dict(value) if isinstance(value, Mapping) else value)
