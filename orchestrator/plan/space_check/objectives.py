"""Check objectives: every arm must report them, they must vary, and settings alone must not decide them."""

from collections.abc import Iterable, Sequence

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.ablation_check.searched_fields import systems_at_ends
from orchestrator.plan.ablation_check.weights import Weights
from orchestrator.plan.answer import primary_outcomes
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.training_code.settings import System
from orchestrator.spec.section import Objective
from orchestrator.spec.types import Answer, Search
from search_spaces.dimensions import Space
from search_spaces.wording import hint
from trainables.metrics import Metric, look_up

COMPARED = 2
"""Minimum number of arms for a comparison."""
NAMED = 3
"""Maximum number of arms in a message."""
_POINTS = (Weights.INITIAL, Weights.EARLY, Weights.LATE)


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


def check_movement(
    search: Search,
    arms: Sequence[tuple[BuiltInArm, Space]],
    probe: Probe,
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Add a fault for an objective that only halting can change, if it is constant.

    A single objective must vary in every arm. One of several must vary in at least one arm.
    """
    for place, objective in enumerate(search.objectives):
        quantity = look_up(metrics, objective.metric)
        if not quantity.moves_with or faults.has("objective", place):
            continue
        alone = len(search.objectives) == 1
        reasons = [(arm, _stands_still(quantity, arm, space, probe, alone=alone)) for arm, space in arms]
        still = [(arm, reason) for arm, reason in reasons if reason]
        if still and (alone or len(still) == len(reasons)):
            arm, reason = still[0]
            message = (
                f"must vary, got {objective.metric}, which {reason} in {arm.name}: choose another, or let "
                "something halt"
            )
            keys, about = ("search", "objectives", place, "metric"), ("objective", place)
            faults.add(message, *keys, about=about, code=FaultCode.METRIC_DOES_NOT_VARY)


def check_answer_moves(
    answer: Answer,
    arms: Sequence[tuple[BuiltInArm, Space]],
    probe: Probe,
    metrics: Sequence[Metric],
    faults: Faults,
) -> None:
    """Add a fault for a primary outcome that only halting can change, if it is constant in every arm.

    A spec with the baseline alone is skipped, since it has no comparison.
    """
    for keys, name in primary_outcomes(answer):
        if not (quantity := look_up(metrics, name)).moves_with or len(arms) < COMPARED:
            continue
        reasons = [(_stands_still(quantity, arm, space, probe, alone=True), arm.name) for arm, space in arms]
        if all(reason for reason, _ in reasons):
            still = [f"{reason} in {arm}" for reason, arm in reasons]
            still_text = ", ".join(still[:NAMED]) + (", ..." if len(still) > NAMED else "")
            message = (
                f"must differ between seeds, got {name}, which {still_text}: no seed is needed to know it; "
                "choose another, or let something halt"
            )
            faults.add(message, "answer", *keys, code=FaultCode.METRIC_DOES_NOT_VARY)


def _stands_still(
    quantity: Metric, arm: BuiltInArm, space: Space, probe: Probe, *, alone: bool
) -> str | None:
    """Return why `quantity` does not depend on the weights of `arm`, for all draws; None if it does."""
    drawn_systems = [arm.system]
    for dimension in space.dimensions:
        drawn_systems += systems_at_ends(arm.system.settings, dimension, space)
    try:
        # Run full models only if the quantity is constant in narrow ones.
        moves = quantity.moves_with
        values = _fixed_values(moves, map(probe.narrow, drawn_systems), probe) and _fixed_values(
            moves, drawn_systems, probe
        )
        sizes = _sizes(quantity, drawn_systems, probe)
    except ValueError:
        return None  # the ablation check refuses arms that cannot be run
    if not values:
        return None
    if len(values) == sizes == 1:
        # The value of a derived quantity is unknown; it is only known to be constant.
        if quantity.name != quantity.moves_with:
            return "the settings decide, as no layer is left out,"
        return f"is always {next(iter(values)):g}"
    return "the search itself sets" if alone else None


def _sizes(quantity: Metric, systems: Sequence[System], probe: Probe) -> int:
    """Return the number of values that settings alone give to `quantity`; costs depend on model sizes."""
    if not quantity.is_cost or quantity.name == quantity.moves_with:
        return 1
    return len({probe.structure(system).flops_max for system in systems})


def _fixed_values(quantity: str, systems: Iterable[System], probe: Probe) -> set[float]:
    """Return the values of `quantity` in the systems; empty if it depends on the weights in one of them."""
    values = set[float]()
    for system in systems:
        values_seen = {probe.halting(system, point)[quantity] for point in _POINTS}
        if len(values_seen) > 1:
            return set()
        values |= values_seen
    return values
