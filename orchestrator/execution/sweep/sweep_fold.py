"""Fold the events of a sweep into the state of a session: conductor, attempts, hours, snapshots."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from orchestrator import __version__
from orchestrator.conductor import snapshot
from orchestrator.conductor.attempts import Attempts
from orchestrator.conductor.budget import WallClock
from orchestrator.conductor.conductor import Conductor
from orchestrator.files.json_values import to_json_values
from orchestrator.identity import digest
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.ledger_snapshot import decompressed_lines
from orchestrator.plan.serialise import to_json
from orchestrator.plan.types import Plan

SNAPSHOT_FORMAT = 4
"""Version of the snapshot format, increased whenever the fold or its JSON changes.

Snapshots of another format are ignored.
"""
_to_json_text = json.JSONEncoder(separators=(",", ":")).encode


class SweepFold:
    """State of a session, updated with events in their order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.conductor = Conductor(plan)
        self.attempts: dict[str, Attempts] = {}
        self.wall_clock = WallClock()
        self.seq = 0
        """Number of events so far."""
        self._first_requests: dict[str, int] = {}
        """Event positions at which unended trials were first requested; 0 if unknown."""
        # An early stopper depends on all earlier reports, so snapshots omit its state.
        self._has_stopper = plan.has_stopper

    def apply(self, event: Event) -> bool:
        """Apply the next event to the conductor too; return whether it is progress of a trial.

        Raises:
            StoreError: The trial is not in this plan.
        """
        self.conductor.replay(event)
        return self.apply_decision(event)

    def apply_decision(self, event: Event) -> bool:
        """Apply an event that the conductor itself decided; return whether it is progress of a trial."""
        self.seq += 1
        self.wall_clock.apply(event)
        if event.trial_id is None:
            return False
        if event.kind is EventKind.PARAMS_ASSIGNED:
            self.attempts[event.trial_id] = Attempts(event.payload["phase"])
            self._first_requests[event.trial_id] = self.seq
        elif event.kind is EventKind.RETRIED and "cause" in event.payload:
            del self.attempts[event.trial_id]
        else:
            attempts = self.attempts[event.trial_id]
            has_progressed = attempts.apply(event)
            if attempts.ended is not None:
                self._first_requests.pop(event.trial_id, None)
            else:
                self._first_requests.setdefault(event.trial_id, 0)
            return has_progressed
        return False

    def make_conductor(self) -> Conductor:
        """Return an independent conductor with the same state, which may make decisions."""
        conductor = Conductor(self._plan)
        snapshot.from_chunks(conductor, snapshot.to_chunks(self.conductor))
        return conductor

    def content(self) -> bytes:
        """Return the state for a snapshot as compressed lines of JSON."""
        packer = zlib.compressobj(level=1)
        packed = [packer.compress(f"{_to_json_text(chunk)}\n".encode()) for chunk in self._chunks()]
        return b"".join([*packed, packer.flush()])

    def matches(self, content: bytes) -> bool:
        """Return whether a snapshot contains this state; the compression may differ."""
        try:
            return zlib.decompress(content) == zlib.decompress(self.content())
        except zlib.error:
            return False

    @classmethod
    def restore(cls, plan: Plan, seq: int, content: bytes) -> "SweepFold | None":
        """Return the fold restored from a snapshot at position `seq`; None if the snapshot is unusable."""
        fold = cls(plan)
        try:
            chunks = map(json.loads, decompressed_lines(content))
            fold._first_requests = next(chunks)["open_trials"]
            fold.wall_clock.load(next(chunks))
            ids = {trial.trial_id: trial.trial_id for trial in plan.trials}  # reuse one string object per id
            for _ in range(next(chunks)):
                for name, values in next(chunks):
                    fold.attempts[ids.get(name, name)] = Attempts.from_json(values)
            snapshot.from_chunks(fold.conductor, chunks)
        except (zlib.error, ValueError, TypeError, LookupError, AttributeError, StopIteration):
            return None
        fold.seq = seq
        return fold

    def _chunks(self) -> Iterator[Any]:
        yield to_json_values(snapshot.ended_trials(self.conductor, self.attempts, self._first_requests))
        if self._has_stopper:
            return
        yield self.wall_clock.to_json()
        attempts = ([name, attempts.to_json()] for name, attempts in self.attempts.items())
        yield -(-len(self.attempts) // snapshot.MAX_CHUNK_TRIALS)
        while chunk := list(islice(attempts, snapshot.MAX_CHUNK_TRIALS)):
            yield chunk
        yield from snapshot.to_chunks(self.conductor)


def snapshot_key(plan: Plan) -> str:
    """Return a digest of all inputs of the state except the events."""
    ids = "".join(trial.trial_id for trial in plan.trials)
    return digest(SNAPSHOT_FORMAT, __version__, to_json(replace(plan, trials=())), ids)
