"""Convert events to rows and back; step and seconds of measurements are columns, the rest is JSON."""

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.files.json_values import parse_json
from orchestrator.files.redact import escape_unstorable_values
from orchestrator.ledger.events import Event, EventKind
from orchestrator.trials import OutcomeKind

_KIND_BY_NAME = {kind.value: kind for kind in EventKind}
_SWEEP_EVENTS = frozenset({EventKind.OPENED, EventKind.DATA_BUILT, EventKind.CLOSED})
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_encode_metrics = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Encoder of metrics; Python's JSON writes infinite values as `NaN`, `Infinity` and `-Infinity`."""


def to_row(event: Event) -> dict[str, Any]:
    """Return the column values of an event.

    Raises:
        ValueError: For a number that is not finite, except in metrics.
    """
    is_of_sweep = event.kind in _SWEEP_EVENTS
    assert (event.trial_id is None) == is_of_sweep, f"{event.kind} must name its trial, or none"
    row: dict[str, Any] = {"kind": event.kind.value, "at": float(event.at), "trial_id": event.trial_id}
    row |= dict.fromkeys(("step", "seconds", "outcome"))
    payload: Any = event.payload
    encode = _encode
    if event.kind is EventKind.MEASURED:
        row |= {"step": int(payload["step"]), "seconds": float(payload["seconds"])}
        payload, encode = payload["metrics"], _encode_metrics
    elif event.kind is EventKind.ENDED and OutcomeKind(payload["kind"]).is_final:
        row["outcome"] = payload["kind"]
    return row | {"payload": encode(escape_unstorable_values(payload))}


def from_row(row: Sequence[Any]) -> Event:
    """Return the event of a verified row (values of `chain.CHAINED_COLUMNS` and the digest)."""
    seq, name, at, trial_id, step, seconds, _, text, _ = row
    payload = parse_json(text)
    if step is not None:
        payload = {"step": step, "seconds": seconds, "metrics": payload}
    return Event(_KIND_BY_NAME[name], at, trial_id, payload, seq)
