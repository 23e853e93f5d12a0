"""Check objectives: every arm must report them, they must vary, and settings alone must not decide them."""

from collections.abc import Iterable, Sequence

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.ablation_check.searched_fields import settings_at_range_ends
from orchestrator.plan.ablation_check.weights import TestedWeights
from orchestrator.plan.answer import primary_outcomes
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.training_code.settings import ParsedSettings
from orchestrator.spec.section import Objective
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Space
from search_spaces.wording import hint
from trainables.metrics import Metric, look_up

COMPARED = 2
"""Minimum number of arms for a comparison."""
MAX_LISTED_ARMS = 3
"""Maximum number of arms in a message."""
_POINTS = (TestedWeights.INITIAL, TestedWeights.EARLY, TestedWeights.LATE)


def against_declared(objective: Objective, metrics: Iterable[Metric]) -> tuple[str, str] | None:
    """Return why the declared `metrics` exclude an objective: it is constant, or the goal is reversed.

    Returns:
        The key of the objective that is wrong, and the reason; None if there is no problem.
    """
    name, metric = objective.metric, look_up(metrics, objective.metric)
    if metric.given:
        return "metric", f"must vary, got {name}, which {metric.given}"
    if metric.better in (None, objective.goal):
        return None
    least = "largest" if objective.goal == "max" else "smallest"
    return "goal", f"must be {metric.better}, got {objective.goal}: the best {name} is not the {least} one"


def check_objectives(
    search: Search, arm: BuiltInArm, probe: Probe, metrics: Sequence[Metric], faults: Faults
) -> None:
    """Add faults for objectives that are constant, or that search trials of `arm` do not report."""
    try:
        metric_names = probe.metrics(arm.system)
    except ValueError:
        return  # the ablation check refuses arms that cannot be run
    for place, objective in enumerate(search.objectives):
        keys, metric = ("search", "objectives", place), objective.metric
        about = ("objective", place)
        if faults.has(*about):
            continue
        if metric not in metric_names:
            message = f"no metric named {metric!r}"
            if not arm.request.is_baseline:
                message = f"{arm.name} reports no {metric!r}, so it cannot be searched with the others"
            message = f"{message}. {hint(metric, metric_names)}"
            faults.add(message, *keys, "metric", about=about, code=FaultCode.UNKNOWN_NAME)
        elif fault := against_declared(objective, metrics):
            faults.add(fault[1], *keys, fault[0], about=about)


def check_metrics_vary(
    spec: Spec,
    arms: Sequence[tuple[BuiltInArm, Space]],
    probe: Probe,
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Add faults for objectives and primary outcomes that only halting can change, if they are constant.

    A single objective must vary in every arm, one of several in at least one arm. So must a primary outcome,
    if there is an arm to compare with the baseline.
    """
    alone = len(spec.objectives) == 1
    for place, objective in enumerate(spec.objectives):
        still = _constant_arms(look_up(metrics, objective.metric), arms, probe, alone=alone)
        if still and (alone or len(still) == len(arms)):
            message = (
                f"must vary, got {objective.metric}, which {still[0]}: "
                "choose another metric, or enable halting"
            )
            objective_keys = ("search", "objectives", place, "metric")
            faults.add(message, *objective_keys, code=FaultCode.METRIC_DOES_NOT_VARY)
    for keys, name in primary_outcomes(spec.answer) if spec.answer and len(arms) >= COMPARED else ():
        still = _constant_arms(look_up(metrics, name), arms, probe, alone=True)
        if len(still) == len(arms):
            still_text = ", ".join(still[:MAX_LISTED_ARMS]) + (
                ", ..." if len(still) > MAX_LISTED_ARMS else ""
            )
            message = (
                f"must vary between seeds, got {name}, which {still_text}: "
                "choose another metric, or enable halting"
            )
            faults.add(message, "answer", *keys, code=FaultCode.METRIC_DOES_NOT_VARY)


def _constant_arms(
    quantity: Metric, arms: Sequence[tuple[BuiltInArm, Space]], probe: Probe, *, alone: bool
) -> list[str]:
    """Return the arms in which `quantity` does not depend on the weights, each after the reason."""
    if not quantity.moves_with:
        return []
    reasons = [(_constant_reason(quantity, arm, space, probe, alone=alone), arm.name) for arm, space in arms]
    return [f"{reason} in {name}" for reason, name in reasons if reason]


def _constant_reason(
    quantity: Metric, arm: BuiltInArm, space: Space, probe: Probe, *, alone: bool
) -> str | None:
    """Return why `quantity` does not depend on the weights of `arm`, for all draws; None if it does."""
    systems = [arm.system]
    for dimension in space.dimensions:
        systems += settings_at_range_ends(arm.system.settings, dimension, space)
    moves, sizes = quantity.moves_with, set[float]()
    try:
        # Run full models only if the quantity is constant in narrow ones.
        values = _fixed_values(moves, map(probe.narrow, systems), probe) and _fixed_values(
            moves, systems, probe
        )
        if quantity.is_cost and quantity.name != moves:  # costs also depend on the sizes of models
            sizes = {probe.structure(system).flops_max for system in systems}
    except ValueError:
        return None  # the ablation check refuses arms that cannot be run
    if len(values) == 1 and len(sizes) <= 1:
        # The value of a derived quantity is unknown; it is only known to be constant.
        is_derived = quantity.name != moves
        return "is fixed, because no layer is skipped," if is_derived else f"is always {min(values):g}"
    return "is set by the search" if values and alone else None


def _fixed_values(quantity: str, systems: Iterable[ParsedSettings], probe: Probe) -> set[float]:
    """Return the values of `quantity` in the systems; empty if it depends on the weights in one of them."""
    values = set[float]()
    for system in systems:
        values_seen = {probe.halting(system, point)[quantity] for point in _POINTS}
        if len(values_seen) > 1:
            return set()
        values |= values_seen
    return values
