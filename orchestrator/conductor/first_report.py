"""What is wrong with a report as such: objectives that are missing, values that must be finite."""

from collections.abc import Iterable, Sequence

from orchestrator.conductor.messages import Stop
from orchestrator.conductor.rounds import TRAINING
from orchestrator.plan.types import Plan
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind, is_usable
from search_spaces.wording import hint
from trainables.protocol import Measurement

TRAINING_LOSS = f"{TRAINING}loss"


def judge_report(plan: Plan, measurement: Measurement) -> Stop | None:
    """Return why the first report of a trial ends it; None if it goes on."""
    objectives = plan.search.objectives if plan.search is not None else ()
    return diverged(decisive(plan), measurement) or lacking(objectives, measurement)


def decisive(plan: Plan) -> tuple[str, ...]:
    """Return the metrics that must stay finite: objectives, primary outcomes and the training loss."""
    objectives = [each.metric for each in plan.search.objectives] if plan.search is not None else []
    outcomes = plan.answer.outcomes if plan.answer is not None else ()
    return tuple(dict.fromkeys([*objectives, *outcomes, TRAINING_LOSS]))


def diverged(names: Iterable[str], measurement: Measurement) -> Stop | None:
    """Return the end of a trial one of whose `names` is not finite; None if all are."""
    for name in names:
        value = measurement.metrics.get(name, 0.0)
        if not is_usable(value):
            message = f"{name} must stay finite, got {value} at step {measurement.step}"
            return Stop(OutcomeKind.DIVERGED, message)
    return None


def evaluates(measurement: Measurement) -> bool:
    """Return whether a report holds anything but what training measures."""
    return not all(name.startswith(TRAINING) for name in measurement.metrics)


def lacking(objectives: Sequence[Objective], measurement: Measurement) -> Stop | None:
    """Return the end of a trial whose first report that evaluates lacks objectives; None if it has all."""
    reported = sorted(measurement.metrics)
    missing = [each.metric for each in objectives if each.metric not in measurement.metrics]
    if not missing or not evaluates(measurement):
        return None
    # The names that there are have been listed.
    near = hint(missing[0], reported).partition("Known:")[0].strip()
    message = (
        f"the first report of a search trial must have its objectives {', '.join(missing)}, got "
        f"{', '.join(reported)} at step {measurement.step}. {near + ' ' * bool(near)}Correct "
        "search.objectives, or the code that reports"
    )
    return Stop(OutcomeKind.CRASHED, message)
