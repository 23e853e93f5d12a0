"""What came of a sweep, computed from its log alone. Pure: the same events give the same records for ever."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger.codec import trial_from_json
from orchestrator.ledger.events import Event, EventKind
from orchestrator.plan.types import Objective, Plan
from orchestrator.trials import OutcomeKind, Record, Trial
from trainables.protocol import Measurement


def records(events: Iterable[Event], plan: Plan) -> list[Record]:
    """One record a trial that was asked for, in that order; those that have not ended have outcome None.

    `best` is by the first objective of the search, the earlier step on a tie, and None without a search.
    A trial that was stopped and goes on is open again; its attempts are counted over all holders.
    """
    objective = plan.search.objectives[0] if plan.search is not None else None
    histories: dict[str, _History] = {}
    provenance: Mapping[str, Any] = {}
    for event in events:
        if event.kind is EventKind.OPENED:
            provenance = {"spec_digest": event.payload["spec_digest"], **event.payload["provenance"]}
        elif event.trial_id is None:
            continue
        elif event.kind is EventKind.ASKED:
            # The first one stands: a trial is asked for once, whoever holds the sweep.
            histories.setdefault(event.trial_id, _History(trial_from_json(event.payload), provenance))
        else:
            histories[event.trial_id].hear(event, objective, provenance)
    return [history.record(plan.name) for history in histories.values()]


def measurements(events: Iterable[Event]) -> dict[str, list[Measurement]]:
    """Every measurement by trial id, steps increasing."""
    found: dict[str, dict[int, Measurement]] = {}
    for event in events:
        if event.kind is EventKind.MEASURED:
            assert event.trial_id is not None
            measurement = measurement_of(event)
            found.setdefault(event.trial_id, {}).setdefault(measurement.step, measurement)
    return {trial_id: [steps[step] for step in sorted(steps)] for trial_id, steps in found.items()}


def measurement_of(event: Event) -> Measurement:
    """The measurement of a `measured` event."""
    payload = event.payload
    return Measurement(payload["step"], payload["seconds"], payload["metrics"])


def better(one: Measurement, other: Measurement | None, objective: Objective) -> bool:
    """Whether `one` beats `other`; a measurement without the objective's metric beats nothing."""
    value = one.metrics.get(objective.metric)
    if value is None:
        return False
    rival = other.metrics[objective.metric] if other is not None else None
    return rival is None or (value > rival if objective.goal == "max" else value < rival)


@dataclass(slots=True)
class _History:
    """One trial while its events pass by."""

    trial: Trial
    provenance: Mapping[str, Any]
    outcome: OutcomeKind | None = None
    reason: str = ""
    last: Measurement | None = None
    best: Measurement | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = 0

    def hear(self, event: Event, objective: Objective | None, provenance: Mapping[str, Any]) -> None:
        if event.kind is EventKind.MEASURED:
            self._measure(measurement_of(event), objective)
        elif event.kind is EventKind.STARTED:
            self.attempts += 1
            self.outcome, self.reason, self.ended_at = None, "", None
            self.provenance = provenance
            self.started_at = event.at if self.started_at is None else self.started_at
        elif event.kind is EventKind.ENDED:
            self.outcome, self.reason = OutcomeKind(event.payload["kind"]), event.payload["reason"]
            self.ended_at = event.at

    def _measure(self, measurement: Measurement, objective: Objective | None) -> None:
        if self.last is None or measurement.step > self.last.step:
            self.last = measurement
        if objective is not None and better(measurement, self.best, objective):
            self.best = measurement

    def record(self, sweep: str) -> Record:
        trial, planned = self.trial, self.trial.planned
        return Record(
            trial_id=planned.trial_id,
            sweep=sweep,
            arm=planned.arm,
            phase=planned.phase,
            number=planned.number,
            seed=planned.seed,
            rank=planned.rank,
            assignment=trial.assignment,
            overrides=planned.overrides,
            settings=trial.settings,
            outcome=self.outcome,
            reason=self.reason,
            last=self.last,
            best=self.best,
            started_at=self.started_at,
            ended_at=self.ended_at,
            attempts=self.attempts,
            provenance=self.provenance,
        )
