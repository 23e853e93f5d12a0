"""What came of a sweep, computed from its log alone. Pure: the same events give the same records for ever."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.plan.types import Plan
from orchestrator.scopes import CountedReports
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, PlannedTrial, Record, Trial
from trainables.protocol import Measurement

OF_MEASUREMENTS: Final = frozenset({EventKind.MEASURED, EventKind.KEPT})
"""Kinds of events that `measurements` is made of."""


def records(events: Iterable[Event], plan: Plan, *, brief: bool = False) -> list[Record]:
    """One record a trial that was asked for, in that order; those that have not ended have outcome None.

    `best` is by the first objective of the search, the earlier step on a tie, and None without a search.
    A trial that was stopped and goes on is open again; its attempts are counted over all holders.
    `brief`: the events were left out by which trials were asked for that have ended; the plan says what they
    are, but for their assignments and settings.
    """
    fold = Fold(plan, {each.trial_id: each for each in plan.trials} if brief else {})
    for event in events:
        fold.hear(event)
    return fold.records()


def measurements(events: Iterable[Event]) -> dict[str, list[Measurement]]:
    """Every measurement by trial id, steps increasing, each with what single examples showed then."""
    found: dict[str, dict[int, Measurement]] = {}
    for event in events:
        if event.kind is EventKind.MEASURED:
            assert event.trial_id is not None
            measurement = measurement_of(event)
            found.setdefault(event.trial_id, {}).setdefault(measurement.step, measurement)
        elif event.kind is EventKind.KEPT and event.payload["step"] in found.get(event.trial_id or "", {}):
            of_trial, step = found[event.trial_id or ""], event.payload["step"]
            of_trial[step] = replace(of_trial[step], examples=tuple(event.payload["examples"]))
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


class Fold:
    """Records of a log that is still growing: hears each event once, answers at any time."""

    def __init__(self, plan: Plan, unasked: Mapping[str, PlannedTrial] = MappingProxyType({})) -> None:
        """`unasked`: trials by id that may come without the event by which they were asked for."""
        self._sweep = plan.name
        self._unasked = unasked
        self._objectives = tuple(plan.search.objectives) if plan.search is not None else ()
        self._histories: dict[str, _History] = {}
        self._provenance: Mapping[str, Any] = {}

    def hear(self, event: Event) -> None:
        """Take in the next event. Raises StoreError for one of a trial that nobody asked for."""
        if event.kind is EventKind.OPENED:
            payload = event.payload
            self._provenance = {"spec_digest": payload["spec_digest"], **payload["provenance"]}
        elif event.kind is EventKind.READ:
            self._provenance = {**self._provenance, "data": event.payload}
        elif event.trial_id is None:
            return
        elif event.kind is EventKind.ASKED:
            # The first one stands: a trial is asked for once, whoever holds the sweep.
            history = _History(trial_from_json(event.payload), self._provenance)
            self._histories.setdefault(event.trial_id, history)
        else:
            history = self._histories.get(event.trial_id) or self._without_asking(event.trial_id)
            history.hear(event, self._objectives, self._provenance)

    def _without_asking(self, trial_id: str) -> "_History":
        planned = self._unasked.get(trial_id)
        if planned is None:
            raise StoreError(
                f"a ledger must hold trials of its plan, and {trial_id} is none of {self._sweep!r}, or was "
                "never asked for; `haltsweep verify` says what else is wrong"
            )
        trial = Trial(planned, {}, {})
        return self._histories.setdefault(trial_id, _History(trial, self._provenance))

    def records(self) -> list[Record]:
        """One record a trial, in the order they were asked for."""
        return [history.record(self._sweep) for history in self._histories.values()]


@dataclass(slots=True)
class _History:
    """One trial while its events pass by."""

    trial: Trial
    provenance: Mapping[str, Any]
    outcome: OutcomeKind | None = None
    reason: str = ""
    last: Measurement | None = None
    best: Measurement | None = None
    counted: CountedReports | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = 0

    def hear(self, event: Event, objectives: Sequence[Objective], provenance: Mapping[str, Any]) -> None:
        if event.kind is EventKind.MEASURED:
            self._measure(measurement_of(event), objectives)
        elif event.kind is EventKind.STARTED:
            self.attempts += 1
            self.outcome, self.reason, self.ended_at = None, "", None
            self.provenance = provenance
            self.started_at = event.at if self.started_at is None else self.started_at
        elif event.kind is EventKind.ENDED:
            self.outcome, self.reason = OutcomeKind(event.payload["kind"]), event.payload["reason"]
            self.ended_at = event.at

    def _measure(self, measurement: Measurement, objectives: Sequence[Objective]) -> None:
        if newest := self.last is None or measurement.step > self.last.step:
            self.last = measurement
        if objectives and newest and self.trial.planned.phase == "search":
            self.counted = self.counted or CountedReports(objectives)
            self.counted.add(measurement)
        if objectives and better(measurement, self.best, objectives[0]):
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
            judged=self.counted.measurement if self.counted else None,
            reports=self.counted.reports if self.counted else 0,
            started_at=self.started_at,
            ended_at=self.ended_at,
            attempts=self.attempts,
            provenance=self.provenance,
        )
