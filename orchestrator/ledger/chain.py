"""Digests over rows: each event's holds those before it, so that a changed or missing row shows.

The first link is made from the sweep's uid: rows of one sweep are none of another's. The row of the sweep
holds the newest link and is sealed itself. This finds damage, not forgery: there is no secret in it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHAINED = ("seq", "kind", "at", "trial_id", "step", "seconds", "outcome", "payload")
"""Columns of an event that its digest is made from; the payload is the last."""
SEALED = ("id", "name", "uid", "last_seq", "token", "holder", "expires_at", "head")
"""Columns of a sweep that its seal is made from."""
SIZE = 16
_SHOWN = 80
_dumps = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Break:
    """One place where the chain does not hold."""

    place: str
    what: str


def first(uid: str) -> str:
    """What the first event of a sweep is chained to."""
    return _hexdigest(f"haltsweep {uid}".encode())


def link(previous: str, row: Sequence[Any]) -> str:
    """Digest of an event (values of `CHAINED`) behind the one with the digest `previous`."""
    # No raw line break is in JSON, so that the parts cannot be mistaken for each other.
    return _hexdigest(f"{previous}\n{_dumps(row[:-1])}\n{row[-1]}".encode())


def seal(sweep: Mapping[str, Any]) -> str:
    """Digest of the row of a sweep."""
    return _hexdigest(_dumps([sweep[name] for name in SEALED]).encode())


def sealed(sweep: Mapping[str, Any]) -> bool:
    """Whether the row of a sweep is as it was written."""
    try:
        return bool(seal(sweep) == sweep["seal"])
    except (TypeError, ValueError):  # damage can put bytes where text was
        return False


def breaks(previous: str, after: int, rows: Iterable[Sequence[Any]]) -> Iterator[Break]:
    """Where `rows` (`CHAINED` and the digest), which follow position `after`, are not as written."""
    for row in rows:
        *values, digest = row
        if not _holds(previous, values, digest):
            yield _break(after, values)
        previous, after = digest, values[0]


def ending(previous: str, at: int, sweep: Mapping[str, Any]) -> Break | None:
    """What is wrong with the end of a chain whose newest event is at position `at`."""
    last, head = sweep["last_seq"], sweep["head"]
    if (at, previous) == (last, head):
        return None
    if at < last:
        return Break(f"events {at + 1} to {last}", "must be at the end, and are missing")
    return Break(f"event {at}", f"must be the newest, and the sweep's row says that event {last} is")


def _holds(previous: str, values: Sequence[Any], digest: Any) -> bool:
    try:
        return bool(link(previous, values) == digest)
    except (TypeError, ValueError):
        return False


def _break(after: int, values: Sequence[Any]) -> Break:
    seq, kind, _, trial_id = values[:4]
    what = f"{_shown(kind)}, trial {_shown(trial_id)}" if trial_id is not None else _shown(kind)
    place = f"event {_shown(seq)} ({what})"
    if isinstance(seq, int) and isinstance(after, int) and seq > after + 1:
        return Break(place, f"does not follow event {after}: what was written between them is missing")
    return Break(place, "is not as it was written, or was not written here")


def _shown(value: Any) -> str:
    return str(value)[:_SHOWN]


def _hexdigest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=SIZE).hexdigest()
