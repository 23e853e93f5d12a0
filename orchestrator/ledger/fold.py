"""Compute records of trials from the event log alone; the same events always give the same records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.plan.types import Plan
from orchestrator.spec.scopes import CountedReports
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, Record, Trial, is_usable
from trainables.protocol import Measurement

MEASUREMENT_KINDS: Final = frozenset({EventKind.MEASURED, EventKind.EXAMPLES, EventKind.RETRIED})
"""Kinds of events that `measurements` uses."""


def records(events: Iterable[Event], plan: Plan) -> list[Record]:
    """Return one record for each trial with an assignment, in that order; open trials have outcome None.

    `best` has the best value of the first objective, and the earlier step on a tie; it is None without a
    search. A stopped trial that resumes is open again. Attempts are counted over all holders of the sweep.
    """
    fold = RecordBuilder(plan)
    for event in events:
        fold.apply(event)
    return fold.records()


def measurements(events: Iterable[Event]) -> dict[str, list[Measurement]]:
    """Return all measurements by trial id, ordered by step, each with its values of single examples.

    Measurements of a retried trial after the checkpoint from which it resumed are omitted.
    """
    by_trial: dict[str, dict[int, Measurement]] = {}
    for event in events:
        if event.kind is EventKind.MEASURED:
            assert event.trial_id is not None
            measurement = read_measurement(event)
            by_trial.setdefault(event.trial_id, {}).setdefault(measurement.step, measurement)
        elif event.kind is EventKind.EXAMPLES and event.payload["step"] in by_trial.get(
            event.trial_id or "", {}
        ):
            trial_measurements, step = by_trial[event.trial_id or ""], event.payload["step"]
            trial_measurements[step] = replace(
                trial_measurements[step], examples=tuple(event.payload["examples"])
            )
        elif event.kind is EventKind.RETRIED:
            trial_measurements, checkpoint_step = (
                by_trial.get(event.trial_id or "", {}),
                event.payload.get("step", -1),
            )
            for step in [report_step for report_step in trial_measurements if report_step > checkpoint_step]:
                del trial_measurements[step]
    return {trial_id: [steps[step] for step in sorted(steps)] for trial_id, steps in by_trial.items()}


def read_measurement(event: Event) -> Measurement:
    """Return the measurement of a `measured` event."""
    payload = event.payload
    return Measurement(payload["step"], payload["seconds"], payload["metrics"])


def is_better(measurement: Measurement, best: Measurement | None, objective: Objective) -> bool:
    """Return whether `measurement` is better than `best`; a measurement without a finite value never is."""
    value = measurement.metrics.get(objective.metric, nan)
    if not is_usable(value):
        return False
    best_value = best.metrics[objective.metric] if best is not None else None
    return best_value is None or (value > best_value if objective.goal == "max" else value < best_value)


class RecordBuilder:
    """Records of a growing log, updated event by event."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._objectives = plan.objectives
        self._histories: dict[str, _TrialHistory] = {}
        self._provenance: Mapping[str, Any] = {}

    def apply(self, event: Event) -> None:
        """Apply the next event.

        Raises:
            StoreError: If the event is of a trial without an `asked` event.
        """
        if event.kind is EventKind.OPENED:
            payload = event.payload
            self._provenance = {"spec_digest": payload["spec_digest"], **payload["provenance"]}
        elif event.kind is EventKind.DATA_BUILT:
            self._provenance = {**self._provenance, "data": event.payload}
        elif event.trial_id is None:
            return
        elif event.kind is EventKind.RETRIED and "cause" in event.payload:
            self._histories.pop(event.trial_id, None)  # the trial may get other settings
        elif event.kind is EventKind.PARAMS_ASSIGNED:
            # A trial receives its assignment once, over all holders of the sweep: the first `asked` event
            # counts.
            history = _TrialHistory(trial_from_json(event.payload), self._provenance)
            self._histories.setdefault(event.trial_id, history)
        else:
            trial_history = self._histories.get(event.trial_id)
            if trial_history is None:
                raise StoreError(
                    f"a ledger must hold trials of its plan, and {event.trial_id} is not in "
                    f"{self._plan.name!r}, or has no assignment; `haltsweep verify` lists all faults"
                )
            trial_history.apply(event, self._objectives, self._provenance)

    def records(self) -> list[Record]:
        """Return one record for each trial, in the order of their assignments."""
        return [history.record(self._plan.name) for history in self._histories.values()]


@dataclass(slots=True)
class _TrialHistory:
    """State of one trial, updated by its events."""

    trial: Trial
    provenance: Mapping[str, Any]
    outcome: OutcomeKind | None = None
    reason: str = ""
    last: Measurement | None = None
    best: Measurement | None = None
    counted_reports: CountedReports | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = 0
    last_report_at: float | None = None
    retried: tuple[float, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    values_at_checkpoint: tuple[Measurement | None, Measurement | None, CountedReports | None] = (
        None,
        None,
        None,
    )
    """Values of `last`, `best` and `counted_reports` at the newest checkpoint."""

    def apply(self, event: Event, objectives: Sequence[Objective], provenance: Mapping[str, Any]) -> None:
        if event.kind in {EventKind.MEASURED, EventKind.STARTED}:
            self.last_report_at = event.at
        if event.kind is EventKind.MEASURED:
            self._add_measurement(read_measurement(event), objectives)
        elif event.kind is EventKind.STARTED:
            self.attempts += 1
            self.outcome, self.reason, self.ended_at = None, "", None
            self.provenance = provenance
            self.started_at = event.at if self.started_at is None else self.started_at
        elif event.kind is EventKind.ATTRIBUTES:
            self.attributes |= event.payload
        elif event.kind is EventKind.CHECKPOINTED:
            self.values_at_checkpoint = (
                self.last,
                self.best,
                self.counted_reports and self.counted_reports.copy(),
            )
        elif event.kind is EventKind.ENDED:
            self.outcome, self.reason = OutcomeKind(event.payload["kind"]), event.payload["reason"]
            self.ended_at = event.at
        elif event.kind is EventKind.RETRIED:
            self._retry_trial(event)

    def _retry_trial(self, event: Event) -> None:
        self.retried = (*self.retried, event.at)
        self.outcome, self.reason, self.ended_at = None, "", None
        if event.payload["step"] < 0:
            self.values_at_checkpoint, self.attributes = (None, None, None), {}
        self.last, self.best, counted = self.values_at_checkpoint
        self.counted_reports = counted and counted.copy()

    def _add_measurement(self, measurement: Measurement, objectives: Sequence[Objective]) -> None:
        if newest := self.last is None or measurement.step > self.last.step:
            self.last = measurement
        if objectives and newest and self.trial.planned.phase == "search":
            self.counted_reports = self.counted_reports or CountedReports(objectives)
            self.counted_reports.add(measurement)
        if objectives and is_better(measurement, self.best, objectives[0]):
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
            repeat=planned.repeat,
            assignment=trial.assignment,
            overrides=planned.overrides,
            settings=trial.settings,
            outcome=self.outcome,
            reason=self.reason,
            last=self.last,
            best=self.best,
            judged=self.counted_reports.measurement if self.counted_reports else None,
            reports=self.counted_reports.reports if self.counted_reports else 0,
            started_at=self.started_at,
            ended_at=self.ended_at,
            attempts=self.attempts,
            last_activity_at=self.last_report_at,
            retried_at=self.retried,
            attributes=dict(self.attributes),
            provenance=self.provenance,
        )
