"""Compute chained digests of rows: each event's digest depends on all events before it.

A changed or missing row is therefore detected. The first link depends on the sweep's uid, so that rows of
another sweep do not fit. The row of the sweep holds the newest digest and has a seal. The digests detect
damage, not forgery, since they use no secret.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHAINED_COLUMNS = ("seq", "kind", "at", "trial_id", "step", "seconds", "outcome", "payload")
"""Columns from which the digest of an event is computed; the payload is the last."""
SEALED_COLUMNS = ("id", "name", "uid", "last_seq", "token", "holder", "expires_at", "head")
"""Columns from which the seal of a sweep is computed."""
DIGEST_BYTES = 16
_MAX_TEXT_LENGTH = 80
_to_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """One place where the chain is broken."""

    place: str
    what: str


def first_digest(uid: str) -> str:
    """Return the digest that the first event of a sweep uses as the digest of the previous event."""
    return _hexdigest(f"haltsweep {uid}".encode())


def link_digest(previous_digest: str, row: Sequence[Any]) -> str:
    """Return the digest of an event from its `CHAINED_COLUMNS` and the digest of the previous event."""
    # JSON contains no raw line break, so that line breaks separate the parts unambiguously.
    return _hexdigest(f"{previous_digest}\n{_to_json(row[:-1])}\n{row[-1]}".encode())


def seal_digest(sweep: Mapping[str, Any]) -> str:
    """Return the digest of the row of a sweep."""
    return _hexdigest(_to_json([sweep[name] for name in SEALED_COLUMNS]).encode())


def is_sealed(sweep: Mapping[str, Any]) -> bool:
    """Return whether the row of a sweep is unchanged since it was written."""
    try:
        return bool(seal_digest(sweep) == sweep["seal"])
    except (TypeError, ValueError):  # damage can replace text with bytes
        return False


def find_breaks(previous_digest: str, after_seq: int, rows: Iterable[Sequence[Any]]) -> Iterator[ChainBreak]:
    """Yield the places at which `rows` differ from the rows that were written.

    Args:
        previous_digest: Digest of the event before the first row.
        after_seq: Position of that event.
        rows: Values of `CHAINED_COLUMNS` and the digest of each event.
    """
    for row in rows:
        *values, digest = row
        if not _matches_digest(previous_digest, values, digest):
            yield _make_break(after_seq, values)
        previous_digest, after_seq = digest, values[0]


def find_end_breaks(newest_digest: str, newest_seq: int, sweep: Mapping[str, Any]) -> Iterator[ChainBreak]:
    """Yield the fault at the end of a chain, if there is one.

    Args:
        newest_digest: Digest of the newest event.
        newest_seq: Position of the newest event.
        sweep: Row of the sweep.
    """
    last, head = sweep["last_seq"], sweep["head"]
    if (newest_seq, newest_digest) == (last, head):
        return
    if newest_seq < last:
        yield ChainBreak(f"events {newest_seq + 1} to {last}", "must be at the end, and are missing")
    else:
        fault = f"must be the newest event, but the sweep's row names event {last}"
        yield ChainBreak(f"event {newest_seq}", fault)


def _matches_digest(previous_digest: str, values: Sequence[Any], digest: Any) -> bool:
    try:
        return bool(link_digest(previous_digest, values) == digest)
    except (TypeError, ValueError):
        return False


def _make_break(after_seq: int, values: Sequence[Any]) -> ChainBreak:
    seq, kind, _, trial_id = values[:4]
    event_text = f"{_shorten(kind)}, trial {_shorten(trial_id)}" if trial_id is not None else _shorten(kind)
    place = f"event {_shorten(seq)} ({event_text})"
    if isinstance(seq, int) and isinstance(after_seq, int) and seq > after_seq + 1:
        return ChainBreak(place, f"does not follow event {after_seq}: the events between them are missing")
    return ChainBreak(place, "differs from what haltsweep wrote, or was written by another program")


def _shorten(value: Any) -> str:
    return str(value)[:_MAX_TEXT_LENGTH]


def _hexdigest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
