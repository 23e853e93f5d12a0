"""Convert the state of a conductor to JSON values and back, as an alternative to replaying its events."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.conductor.attempts import Attempts
from orchestrator.conductor.messages import Stop
from orchestrator.conductor.overview import EndedTrialTotals
from orchestrator.conductor.rounds import Rounds
from orchestrator.conductor.state import ArmState, TrialState, TrialStatus
from orchestrator.conductor.winners import Candidate
from orchestrator.ledger.events import trial_from_json, trial_to_json
from orchestrator.plan.planned_trials import search_trial
from orchestrator.spec.scopes import CountedReports
from orchestrator.spec.section import Objective
from orchestrator.trials import Outcome, OutcomeKind
from trainables.protocol import Measurement

if TYPE_CHECKING:
    from orchestrator.conductor.conductor import Conductor

_NO_METRICS: Mapping[str, Any] = MappingProxyType({})
"""Shared empty mapping for measurements without stored metrics, to save memory."""
MAX_CHUNK_TRIALS = 1000
"""Number of trials in one JSON value, which limits memory use."""


def ended_trials(
    conductor: "Conductor", attempts: Mapping[str, Attempts], asked_positions: Mapping[str, int]
) -> EndedTrialTotals:
    """Return sums over the ended trials, and the positions of the open ones.

    Args:
        conductor: A conductor that has replayed the events.
        attempts: Attempts by trial id.
        asked_positions: Ledger positions of the `asked` events of the trials that have not ended, by trial
            id.
    """
    plan, ended_trial_totals = conductor._plan, EndedTrialTotals()
    for trial_id, trial_attempts in attempts.items():
        state = conductor._trial_states[trial_id]
        if trial_attempts.ended is None or state.outcome is None:
            ended_trial_totals.open_trials[trial_id] = asked_positions[trial_id]
            continue
        ended_trial_totals.add(
            state.planned,
            state.outcome,
            state.last,
            values=state.objective_values or (),
            attempts=trial_attempts.token,
            objectives=plan.objectives,
        )
    return ended_trial_totals


def to_chunks(conductor: "Conductor") -> Iterator[Any]:
    """Yield the state of a conductor that has only replayed events, in JSON values of bounded size."""
    yield {
        "again": list(conductor._resumable),
        "unrunnable": [
            [trial_to_json(trial), outcome.kind.value, outcome.reason]
            for trial, outcome in conductor._unrunnable.values()
        ],
        "left": conductor._num_open,
        "released": sorted(
            # Only waiting trials can be released, so the flag of other trials has no effect.
            trial_id
            for trial_id, state in conductor._trial_states.items()
            if state.is_released and state.status is TrialStatus.WAITING
        ),
        "confirmed": [[*key, metrics] for key, metrics in conductor._confirmed_metrics.items()],
        "spending": conductor._spending.to_json(),
        "first": conductor._first_errors.to_json(),
    }
    planned = Counter((trial.arm, trial.repeat) for trial in conductor._plan.trials)
    for key, arm_state in conductor._arms.items():
        calls = conductor._searches[key].to_json() if conductor._plan.search is not None else None
        yield [_arm_to_json(arm_state, conductor._trial_states, planned[key]), calls]
    states = conductor._trial_states.values()
    changed_states = (_trial_to_json(state) for state in states if state != state.initial())
    while chunk := list(islice(changed_states, MAX_CHUNK_TRIALS)):
        yield chunk


def from_chunks(conductor: "Conductor", chunks: Iterator[Any]) -> None:
    """Restore the state of a new conductor from the values that `to_chunks` returned for the same plan.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: If the values are invalid.
    """
    head = next(chunks)
    candidates: dict[tuple[str, int], Sequence[int]] = {}
    for key, arm_state in conductor._arms.items():
        values, calls = next(chunks)
        candidates[key] = values["candidates"]
        if calls is not None:
            conductor._searches[key].load(calls)
        _load_arm(conductor, arm_state, values)
    ends: dict[Any, Any] = {}
    for chunk in chunks:
        for trial_id, *values in chunk:
            _load_trial(conductor._trial_states[trial_id], values, conductor._plan.objectives, ends)
    for key, numbers in candidates.items():
        conductor._arms[key].candidates = _candidates(conductor, key, numbers)
    conductor._resumable = dict.fromkeys(head["again"])
    for values, kind, reason in head["unrunnable"]:
        trial = trial_from_json(values)
        conductor._unrunnable[trial.trial_id] = trial, Outcome(OutcomeKind(kind), reason)
    conductor._num_open = head["left"]
    released = set(head["released"])
    for trial_id, state in conductor._trial_states.items():
        state.is_released = trial_id in released
    conductor._confirmed_metrics = {(arm, seed): metrics for arm, seed, metrics in head["confirmed"]}
    conductor._spending.load(head["spending"])
    conductor._first_errors.load(head["first"])
    conductor._rounds = Rounds.from_confirmations(conductor._plan, conductor._confirmed_metrics)


def _arm_to_json(arm_state: ArmState, states: Mapping[str, TrialState], num_planned: int) -> dict[str, Any]:
    # The heap may still contain trials that have started meanwhile.
    ready = [entry for entry in arm_state.ready if states[entry[1]].status is TrialStatus.WAITING]
    return {
        "ready": sorted(ready),
        "searching": arm_state.num_searching,
        "winners": arm_state.winners,
        "candidates": [candidate.number for candidate in arm_state.candidates],
        "ended": {kind.value: count for kind, count in arm_state.ended.items() if count},
        "seconds": arm_state.seconds,
        "drawn": [[trial.planned.number, trial.position] for trial in arm_state.trials[num_planned:]],
    }


def _load_arm(conductor: "Conductor", arm_state: ArmState, values: Mapping[str, Any]) -> None:
    for number, place in values["drawn"]:
        assert conductor._plan.search is not None, "only a search draws again"
        planned = search_trial(arm_state.arm, conductor._plan.search, arm_state.repeat, number)
        state = TrialState(planned, place)
        arm_state.trials.append(state)
        conductor._trial_states[planned.trial_id] = state
    arm_state.ready = [(place, trial_id) for place, trial_id in values["ready"]]
    arm_state.num_searching = values["searching"]
    arm_state.winners = list(values["winners"])
    arm_state.ended = Counter({OutcomeKind(kind): count for kind, count in values["ended"].items()})
    arm_state.seconds = values["seconds"]


def _candidates(conductor: "Conductor", key: tuple[str, int], numbers: Sequence[int]) -> list[Candidate]:
    states = {state.planned.number: state for state in conductor._arms[key].trials_of_phase("search")}
    return [
        Candidate(number, conductor._searches[key].assignment(number), states[number].objective_values or ())
        for number in numbers
    ]


def _trial_to_json(state: TrialState) -> list[Any]:
    return [
        state.planned.trial_id,
        state.status.name,
        state.trial and trial_to_json(state.trial),
        _measurement_to_json(state.last),
        state.has_evaluated,
        _measurement_to_json(state.last_at_checkpoint),
        state.objective_values,
        state.counted_reports and state.counted_reports.to_json(),
        state.counted_at_checkpoint and state.counted_at_checkpoint.to_json(),
        state.pending_stop and [state.pending_stop.kind.value, state.pending_stop.reason],
        state.outcome and [state.outcome.kind.value, state.outcome.reason],
    ]


def _load_trial(
    state: TrialState, values: Sequence[Any], objectives: Sequence[Objective], ends: dict[Any, Any]
) -> None:
    status, trial, last, evaluated, saved, objective_values, counted, saved_counted, standing, outcome = (
        values
    )

    def shared_end(make_end: Callable[[OutcomeKind, str], Any], pair: Sequence[str] | None) -> Any:
        # Most trials end for the same reason, so that equal outcomes share one object.
        if pair is None:
            return None
        key = make_end, *pair
        if key not in ends:
            ends[key] = make_end(OutcomeKind(pair[0]), pair[1])
        return ends[key]

    state.status = TrialStatus[status]
    state.trial = trial and trial_from_json(trial)
    state.last = last and _measurement(*last)
    state.has_evaluated = evaluated
    state.last_at_checkpoint = saved and _measurement(*saved)
    state.objective_values = objective_values and tuple(objective_values)
    state.counted_reports = counted and CountedReports.from_json(objectives, counted)
    state.counted_at_checkpoint = saved_counted and CountedReports.from_json(objectives, saved_counted)
    state.pending_stop = shared_end(Stop, standing)
    state.outcome = shared_end(Outcome, outcome)


def _measurement(step: int, seconds: float, metrics: Mapping[str, float]) -> Measurement:
    return Measurement(step, seconds, metrics or _NO_METRICS, attributes=_NO_METRICS)


def _measurement_to_json(measurement: Measurement | None) -> list[Any] | None:
    return None if measurement is None else [measurement.step, measurement.seconds, dict(measurement.metrics)]
