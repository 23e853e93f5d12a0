"""Validates reports and ends of trials: missing objectives, values out of range, exceeded time limits."""

from collections.abc import Iterable, Sequence
from math import isfinite, isinf

from orchestrator.conductor.messages import Stop
from orchestrator.conductor.rounds import TRAINING
from orchestrator.conductor.state import TrialState
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import Outcome, OutcomeKind, is_usable
from search_spaces.wording import hint
from trainables.metrics import TRAIN_FLOPS, look_up
from trainables.protocol import Measurement

TRAINING_LOSS = f"{TRAINING}loss"
ROUNDING_TOLERANCE = 1e-6
"""Relative tolerance by which a value may exceed its range; absolute for values below 1."""


class ReportJudge:
    """Validation of the reports and ends of the trials of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._decisive = decisive(plan)
        self._spans: dict[str, tuple[float, float]] = {}

    def fault(self, state: TrialState, measurement: Measurement) -> Stop | None:
        """Return the stop of a trial with an invalid report; None for a valid report."""
        return (
            stop_for_divergence(self._decisive, measurement)
            or self._stop_for_range(measurement)
            or self._without_objective(state, measurement)
        )

    def overtime(self, measurement: Measurement) -> Stop | None:
        """Return the stop of a trial that has used more than its minutes; None if time is left."""
        minutes = self._plan.resources.minutes
        if minutes is None or measurement.seconds <= minutes * 60:
            return None
        time_use = (
            f"{measurement.seconds / 60:.1f} of {minutes:g} minutes were used at step {measurement.step}"
        )
        return Stop(OutcomeKind.TIMED_OUT, time_use)

    def judge_outcome(self, state: TrialState, outcome: Outcome, *, wants_flops: bool) -> Outcome:
        """Return the outcome to record for an outcome that a driver reports.

        A search trial that finished without its objectives, or after an invalid report, counts as crashed.
        """
        if state.standing is not None and state.standing.kind in {OutcomeKind.CRASHED, OutcomeKind.DIVERGED}:
            return state.standing.outcome
        if outcome.kind is OutcomeKind.INFEASIBLE and state.planned.phase != "search":
            reason = f"settings that a search found were called infeasible: {outcome.reason}"
            return Outcome(OutcomeKind.CRASHED, reason)
        if outcome.kind is not OutcomeKind.FINISHED:
            return outcome
        trains, reported_metrics = state.planned.phase != "posthoc", state.last.metrics if state.last else {}
        if wants_flops and trains and TRAIN_FLOPS not in reported_metrics:
            reason = f"a trial of a sweep with a budget of FLOPs must report {TRAIN_FLOPS}, and did not"
            return Outcome(OutcomeKind.CRASHED, f"{reason}; report it, or give the budget in device hours")
        if state.planned.phase != "search" or state.objective_values:
            return outcome
        assert self._plan.search is not None
        objective_names = ", ".join(objective.metric for objective in self._plan.search.objectives)
        metric_names = ", ".join(sorted(state.last.metrics) or ["none"]) if state.last else "no measurement"
        reason = (
            f"a search trial must report its objectives {objective_names}, got {metric_names}; "
            "check search.objectives"
        )
        return Outcome(OutcomeKind.CRASHED, reason)

    def _without_objective(self, state: TrialState, measurement: Measurement) -> Stop | None:
        """Return the stop of a search trial whose first evaluation lacks an objective; else None.

        Reports that contain only training metrics are not evaluations.
        """
        plan = self._plan.search
        if plan is None or state.planned.phase != "search" or state.evaluated:
            return None
        state.evaluated = evaluates(measurement)
        return stop_for_missing_objectives(plan.objectives, measurement)

    def _stop_for_range(self, measurement: Measurement) -> Stop | None:
        """Return the stop of a trial with a value outside of its declared range; else None."""
        for name, value in measurement.metrics.items():
            if name not in self._spans:
                self._spans[name] = look_up(self._plan.metrics, name).span
            low, high = self._spans[name]
            slack = ROUNDING_TOLERANCE * max(1.0, abs(value))
            if isfinite(value) and not low - slack <= value <= high + slack:
                message = (
                    f"{name} must be {_range_text(low, high)}, as it is declared, got {value:.6g} at step "
                    f"{measurement.step}; correct what is reported, or the range in `metrics`"
                )
                return Stop(OutcomeKind.CRASHED, message)
        return None


def _range_text(low: float, high: float) -> str:
    if isinf(low) or isinf(high):
        return f"at most {high:g}" if isinf(low) else f"at least {low:g}"
    return f"from {low:g} to {high:g}"


def judge_report(plan: Plan, measurement: Measurement) -> Stop | None:
    """Return the stop of a trial whose first report is invalid; None if the trial continues."""
    objectives = plan.search.objectives if plan.search is not None else ()
    return stop_for_divergence(decisive(plan), measurement) or stop_for_missing_objectives(
        objectives, measurement
    )


def decisive(plan: Plan) -> tuple[str, ...]:
    """Return the metrics that must stay finite: objectives, primary outcomes and the training loss."""
    objectives = [objective.metric for objective in plan.search.objectives] if plan.search is not None else []
    outcomes = plan.answer.outcomes if plan.answer is not None else ()
    return tuple(dict.fromkeys([*objectives, *outcomes, TRAINING_LOSS]))


def stop_for_divergence(names: Iterable[str], measurement: Measurement) -> Stop | None:
    """Return the stop of a trial if a metric in `names` is not finite; None if all are finite."""
    for name in names:
        value = measurement.metrics.get(name, 0.0)
        if not is_usable(value):
            message = f"{name} must stay finite, got {value} at step {measurement.step}"
            return Stop(OutcomeKind.DIVERGED, message)
    return None


def evaluates(measurement: Measurement) -> bool:
    """Return whether a report contains any metric other than training metrics."""
    return not all(name.startswith(TRAINING) for name in measurement.metrics)


def stop_for_missing_objectives(objectives: Sequence[Objective], measurement: Measurement) -> Stop | None:
    """Return the stop of a trial whose first evaluation lacks objectives; None if it has all."""
    reported_names = sorted(measurement.metrics)
    missing = [objective.metric for objective in objectives if objective.metric not in measurement.metrics]
    for name in missing:
        text = measurement.attributes.get(name, "")
        if _is_number(text):
            message = f"{name} must be a number, got the text {text!r} at step {measurement.step}"
            return Stop(OutcomeKind.CRASHED, f"{message}; report float(...) of it")
    if not missing or not evaluates(measurement):
        return None
    # The message already lists the reported names.
    suggestion = hint(missing[0], reported_names).partition("Known:")[0].strip()
    message = (
        f"the first report of a search trial must have its objectives {', '.join(missing)}, got "
        f"{', '.join(reported_names)} at step {measurement.step}. "
        f"{suggestion + ' ' * bool(suggestion)}Correct search.objectives, or the code that reports"
    )
    return Stop(OutcomeKind.CRASHED, message)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
