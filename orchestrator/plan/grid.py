"""What a search by grid needs: values that can be listed, and as many trials as there are combinations."""

from typing import Any

from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.format import domain_words
from orchestrator.plan.planned_trials import is_grid
from orchestrator.plan.spaces import dimension_keys
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Space
from search_spaces.grid import COUNTED_MAX, count_combinations, is_finite


def check_grid(arm: CheckedArm[Any], space: Space, spec: Spec, search: Search, faults: Faults) -> None:
    """Note why the space of `arm` cannot be searched by grid, if that is how it is searched."""
    if not is_grid(search.sampler):
        return
    endless = [each for each in space.dimensions if not is_finite(each.domain)]
    for dimension in endless:
        faults.add(
            "must be a choice, whole numbers or a float with a step to be searched by grid, got "
            f"{domain_words(dimension.domain)}: list values, give a step, or choose another sampler",
            *dimension_keys(dimension.path, search),
            about=("grid", dimension.path),
        )
    if endless:
        return
    size = count_combinations(space, arm.system.settings)
    if size > COUNTED_MAX:
        faults.add(
            f"must have at most {COUNTED_MAX:,} combinations to be tried one by one, got {size:,} in "
            f"{arm.name}: leave values out, or choose another sampler",
            *("search", "sampler"),
            about=("grid",),
        )
    elif size > search.trials_per_arm:
        faults.add(
            f"must be at least {size:,}, the combinations that {arm.name} has, got "
            f"{search.trials_per_arm:,}: a grid is tried as a whole",
            *("search", "trials_per_arm"),
            about=("grid",),
        )
    elif spec.confirm is not None and spec.confirm.best > size:
        faults.add(
            f"must be at most {size:,}, the combinations that {arm.name} has, got {spec.confirm.best}",
            *("confirm", "best"),
            about=("grid",),
        )
