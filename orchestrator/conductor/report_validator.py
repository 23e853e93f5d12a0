"""Validate reports and ends of trials: missing objectives, values out of range, exceeded time limits."""

from collections.abc import Iterable, Sequence
from math import isfinite, isinf

from orchestrator.conductor.messages import Stop
from orchestrator.conductor.rounds import TRAIN_PREFIX
from orchestrator.conductor.state import TrialState
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import Outcome, OutcomeKind, is_usable
from search_spaces.wording import format_value, hint
from trainables.metrics import TRAIN_FLOPS, look_up
from trainables.protocol import Measurement

TRAINING_LOSS = f"{TRAIN_PREFIX}loss"
ROUNDING_TOLERANCE = 1e-6
"""Relative tolerance by which a value may exceed its range; absolute for values below 1."""


class ReportValidator:
    """Validation of the reports and ends of the trials of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._result_metrics, self._decisive_metrics = result_metrics(plan), decisive_metrics(plan)
        self._spans: dict[str, tuple[float, float]] = {}

    def stop_for_fault(self, state: TrialState, measurement: Measurement) -> Stop | None:
        """Return the stop of a trial with an invalid report; None for a valid report."""
        return (
            stop_for_text(self._result_metrics, measurement)
            or stop_for_divergence(self._decisive_metrics, measurement)
            or self._stop_for_range(measurement)
            or self._stop_for_missing_objective(state, measurement)
        )

    def stop_for_overtime(self, measurement: Measurement) -> Stop | None:
        """Return the stop of a trial that has used more than its minutes; None if time is left."""
        minutes = self._plan.resources.minutes
        if minutes is None or measurement.seconds <= minutes * 60:
            return None
        used = f"{measurement.seconds / 60:.1f} of {minutes:g} minutes were used"
        return Stop(OutcomeKind.TIMED_OUT, f"{used} at step {measurement.step}")

    def validate_outcome(self, state: TrialState, outcome: Outcome, *, wants_flops: bool) -> Outcome:
        """Return the outcome to record for an outcome that a driver reports.

        A search trial that finished without its objectives, or after an invalid report, counts as crashed.
        """
        if state.pending_stop is not None and state.pending_stop.kind in {
            OutcomeKind.CRASHED,
            OutcomeKind.DIVERGED,
        }:
            return state.pending_stop.outcome
        if outcome.kind is OutcomeKind.INFEASIBLE and state.planned.phase != "search":
            reason = (
                f"only search trials may be infeasible, got a {state.planned.phase} trial: {outcome.reason}"
            )
            return Outcome(OutcomeKind.CRASHED, reason)
        if outcome.kind is not OutcomeKind.FINISHED:
            return outcome
        is_training, reported_metrics = (
            state.planned.phase != "posthoc",
            state.last.metrics if state.last else {},
        )
        if wants_flops and is_training and TRAIN_FLOPS not in reported_metrics:
            reason = f"a trial of a sweep with a budget of FLOPs must report {TRAIN_FLOPS}, and did not"
            return Outcome(OutcomeKind.CRASHED, f"{reason}; report it, or give the budget in device hours")
        if state.planned.phase != "search" or state.objective_values:
            return outcome
        objective_names = ", ".join(objective.metric for objective in self._plan.objectives)
        metric_names = ", ".join(sorted(state.last.metrics) or ["none"]) if state.last else "no measurement"
        reason = (
            f"a search trial must report its objectives {objective_names}, got {metric_names}; "
            "check search.objectives"
        )
        return Outcome(OutcomeKind.CRASHED, reason)

    def _stop_for_missing_objective(self, state: TrialState, measurement: Measurement) -> Stop | None:
        """Return the stop of a search trial whose first evaluation lacks an objective; else None.

        Reports that contain only training metrics are not evaluations.
        """
        if state.planned.phase != "search" or state.has_evaluated:
            return None
        state.has_evaluated = is_evaluation(measurement)
        return stop_for_missing_objectives(self._plan.objectives, measurement)

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
                    f"{measurement.step}; correct the reported value, or the range in `metrics`"
                )
                return Stop(OutcomeKind.CRASHED, message)
        return None


def _range_text(low: float, high: float) -> str:
    if isinf(low) or isinf(high):
        return f"at most {high:g}" if isinf(low) else f"at least {low:g}"
    return f"from {low:g} to {high:g}"


def judge_report(plan: Plan, measurement: Measurement) -> Stop | None:
    """Return the stop of a trial whose first report is invalid; None if the trial continues."""
    return judge_values(plan, measurement) or stop_for_missing_objectives(plan.objectives, measurement)


def judge_values(plan: Plan, measurement: Measurement) -> Stop | None:
    """Return the stop of a trial with an unusable value of a decisive metric; None for usable values."""
    text = stop_for_text(result_metrics(plan), measurement)
    return text or stop_for_divergence(decisive_metrics(plan), measurement)


def result_metrics(plan: Plan) -> tuple[str, ...]:
    """Return the objectives and the primary outcomes."""
    objectives = (objective.metric for objective in plan.objectives)
    return tuple(dict.fromkeys([*objectives, *plan.outcomes]))


def decisive_metrics(plan: Plan) -> tuple[str, ...]:
    """Return the metrics that must stay finite: objectives, primary outcomes and the training loss."""
    return tuple(dict.fromkeys([*result_metrics(plan), TRAINING_LOSS]))


def stop_for_text(names: Iterable[str], measurement: Measurement) -> Stop | None:
    """Return the stop of a trial that reported a metric in `names` as a text; None otherwise."""
    for name in names:
        if name in measurement.attributes:
            message = (
                f"{name} must be a number, got {format_value(measurement.attributes[name])} at step "
                f"{measurement.step}; report a float, or omit the metric if it has no value"
            )
            return Stop(OutcomeKind.CRASHED, message)
    return None


def stop_for_divergence(names: Iterable[str], measurement: Measurement) -> Stop | None:
    """Return the stop of a trial if a metric in `names` is not finite; None if all are finite."""
    for name in names:
        value = measurement.metrics.get(name, 0.0)
        if not is_usable(value):
            message = f"{name} must stay finite, got {value} at step {measurement.step}"
            return Stop(OutcomeKind.DIVERGED, message)
    return None


def is_evaluation(measurement: Measurement) -> bool:
    """Return whether a report contains any metric other than training metrics."""
    return not all(name.startswith(TRAIN_PREFIX) for name in measurement.metrics)


def stop_for_missing_objectives(objectives: Sequence[Objective], measurement: Measurement) -> Stop | None:
    """Return the stop of a trial whose first evaluation lacks objectives; None if it has all."""
    reported_names = sorted(measurement.metrics)
    missing = [objective.metric for objective in objectives if objective.metric not in measurement.metrics]
    if not missing or not is_evaluation(measurement):
        return None
    # The message already lists the reported names.
    suggestion = hint(missing[0], reported_names).partition("Known:")[0].strip()
    message = (
        f"the first report of a search trial must have its objectives {', '.join(missing)}, got "
        f"{', '.join(reported_names)} at step {measurement.step}. "
        f"{suggestion + ' ' * bool(suggestion)}Correct search.objectives, or the code that reports"
    )
    return Stop(OutcomeKind.CRASHED, message)
