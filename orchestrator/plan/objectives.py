"""What a search may make large or small: what every arm measures, that moves, and that is no setting."""

from collections.abc import Mapping, Sequence

from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.probe import Probe
from orchestrator.plan.proof import systems
from orchestrator.plan.settings import System
from orchestrator.spec.types import Search
from search_spaces.dimensions import Space
from search_spaces.wording import hint

WORSE: Mapping[str, str] = {"loss": "max"} | dict.fromkeys(
    ("accuracy", "accuracy_last", "accuracy_whole", "exact_match", "tokens_per_s"), "min"
)
"""Goals that nobody has: the search would choose the worst trial of every arm."""
_SET = {
    "train/lr": "a setting: search train.lr for the sake of what the model learns",
    "train/skipped_steps": "what the scaling of half precision leaves out, and tells nothing of a model",
}
_THINKING = ("depth", "ponder", "saved")
"""Quantities that move where something halts; `depth_p50` and its like go with `depth`."""
_POINTS = 3
"""Weights at which they are looked at: the initial ones, all halting pushed up, all pushed down."""


def check_objectives(search: Search, arm: BuiltInArm, probe: Probe, faults: Faults) -> None:
    """Every objective must be a metric that the trials of `arm` report while searching, and no setting."""
    try:
        known = probe.metrics(arm.system)
    except ValueError:
        return  # what cannot be run is refused by the proof
    for place, objective in enumerate(search.objectives):
        keys, metric = ("search", "objectives", place), objective.metric
        kind, about = metric.rpartition("/")[2], ("objective", place)
        if faults.has_told(*about):
            continue
        if metric not in known and arm.request.is_baseline:
            faults.add(f"no metric named {metric!r}. {hint(metric, known)}", *keys, "metric", about=about)
        elif metric not in known:
            message = f"{arm.name} reports no {metric!r}, so it cannot be searched with the others"
            faults.add(f"{message}. {hint(metric, known)}", *keys, "metric", about=about)
        elif kind.endswith("floor"):
            message = f"must move, got {metric}, which the data decide: the same in every trial"
            faults.add(f"{message}; choose what it is a floor of", *keys, "metric", about=about)
        elif metric in _SET:
            faults.add(
                f"must be found out, got {metric}, which is {_SET[metric]}", *keys, "metric", about=about
            )
        elif objective.goal == (worse := WORSE.get(kind)):
            better = "min" if worse == "max" else "max"
            faults.add(
                f"must be {better}, got {worse}: the best {metric} is not the "
                f"{'largest' if worse == 'max' else 'smallest'} one",
                *keys,
                "goal",
                about=about,
            )


def check_movement(
    search: Search, arms: Sequence[tuple[BuiltInArm, Space]], probe: Probe, faults: Faults
) -> None:
    """Thinking must vary where it is an objective: in every arm, or in some beside another one."""
    for place, objective in enumerate(search.objectives):
        quantity = objective.metric.rpartition("/")[2].partition("_p")[0]
        if quantity not in _THINKING or faults.has_told("objective", place):
            continue
        alone = len(search.objectives) == 1
        found = [(arm, _stands_still(quantity, arm, space, probe, alone=alone)) for arm, space in arms]
        still = [(arm, why) for arm, why in found if why]
        if still and (alone or len(still) == len(found)):
            arm, why = still[0]
            faults.add(
                f"must move, got {objective.metric}, which {why} in {arm.name}: choose another, or let "
                "something halt",
                "search",
                "objectives",
                place,
                "metric",
                about=("objective", place),
            )


def _stands_still(quantity: str, arm: BuiltInArm, space: Space, probe: Probe, *, alone: bool) -> str | None:
    """Why the weights of `arm` make no difference to `quantity`, whatever its search draws."""
    drawn = [arm.system, *(each for dimension in space.dimensions for each in systems(arm, dimension, space))]
    values = set[float]()
    try:
        for system in drawn:
            seen = _seen(quantity, system, probe)
            if len(seen) > 1:
                return None
            values |= seen
    except ValueError:
        return None  # what cannot be run is refused by the proof
    if len(values) == 1:
        return f"is always {next(iter(values)):g}"
    return "the search itself sets" if alone else None


def _seen(quantity: str, system: System, probe: Probe) -> set[float]:
    return {probe.halting(system, point)[quantity] for point in range(_POINTS)}
