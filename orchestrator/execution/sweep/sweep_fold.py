"""What the events of a sweep fold to for a session: its conductor, its attempts, its hours; and snapshots."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from orchestrator import __version__
from orchestrator.conductor import snapshot
from orchestrator.conductor.attempts import Attempts
from orchestrator.conductor.budget import HeldOpen
from orchestrator.conductor.conductor import Conductor
from orchestrator.files.json_values import to_json_values
from orchestrator.identity import digest
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.ledger_snapshot import lines
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan

FORMAT = 2
"""Raised whenever the fold or the JSON of its state changes: snapshots of another format are not read."""
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class SweepFold:
    """Folds events in their order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.conductor = Conductor(plan)
        self.attempts: dict[str, Attempts] = {}
        self.held = HeldOpen()
        self.seq = 0
        """Number of events so far."""
        self._asked: dict[str, int] = {}
        """Positions at which trials without an end were asked for; 0 where that is not known."""
        # An early stopper judges by all reports before: its state is none for a snapshot.
        self._has_stopper = plan.search is not None and plan.search.stopper is not None

    def hear(self, event: Event) -> bool:
        """Take the next event; return whether it is progress of a trial.

        Raises StoreError for a trial that is not of this plan.
        """
        self.conductor.replay(event)
        return self.note(event)

    def note(self, event: Event) -> bool:
        """Take the next event, which the conductor has decided itself; return as `hear`."""
        self.seq += 1
        self.held.saw(event)
        if event.trial_id is None:
            return False
        if event.kind is EventKind.ASKED:
            self.attempts[event.trial_id] = Attempts(event.payload["phase"])
            self._asked[event.trial_id] = self.seq
        elif event.kind is EventKind.RETRIED and "cause" in event.payload:
            del self.attempts[event.trial_id]
        else:
            attempts = self.attempts[event.trial_id]
            has_progressed = attempts.saw(event)
            if attempts.ended is not None:
                self._asked.pop(event.trial_id, None)
            else:
                self._asked.setdefault(event.trial_id, 0)
            return has_progressed
        return False

    def live(self) -> Conductor:
        """Return an independent conductor with the same state, which may decide."""
        made = Conductor(self._plan)
        snapshot.from_chunks(made, snapshot.to_chunks(self.conductor))
        return made

    def content(self) -> bytes:
        """Return the state for a snapshot: compressed lines of JSON."""
        packer = zlib.compressobj(level=1)
        packed = [packer.compress(f"{_dumps(each)}\n".encode()) for each in self._chunks()]
        return b"".join([*packed, packer.flush()])

    def matches(self, content: bytes) -> bool:
        """Return whether a snapshot has this state, however it is compressed."""
        try:
            return zlib.decompress(content) == zlib.decompress(self.content())
        except zlib.error:
            return False

    @classmethod
    def restored(cls, plan: Plan, seq: int, content: bytes) -> "SweepFold | None":
        """Return the fold with the state of a snapshot at position `seq`; None if the snapshot has none."""
        fold = cls(plan)
        try:
            chunks = map(json.loads, lines(content))
            fold._asked = next(chunks)["open_trials"]
            fold.held.load(next(chunks))
            ids = {each.trial_id: each.trial_id for each in plan.trials}  # a text is kept once
            for _ in range(next(chunks)):
                for name, values in next(chunks):
                    fold.attempts[ids.get(name, name)] = Attempts.from_json(values)
            snapshot.from_chunks(fold.conductor, chunks)
        except (zlib.error, ValueError, TypeError, LookupError, AttributeError, StopIteration):
            return None
        fold.seq = seq
        return fold

    def _chunks(self) -> Iterator[Any]:
        yield to_json_values(snapshot.ended_trials(self.conductor, self.attempts, self._asked))
        if self._has_stopper:
            return
        yield self.held.to_json()
        attempts = ([name, each.to_json()] for name, each in self.attempts.items())
        yield -(-len(self.attempts) // snapshot.CHUNK)
        while chunk := list(islice(attempts, snapshot.CHUNK)):
            yield chunk
        yield from snapshot.to_chunks(self.conductor)


def made_for(plan: Plan) -> str:
    """Return a digest of all that a state depends on besides the events."""
    ids = "".join(each.trial_id for each in plan.trials)
    return digest(FORMAT, __version__, to_json(replace(plan, trials=())), ids)
