"""Plans of small arms with repeated searches and controls, as the planner makes them."""

from dataclasses import replace
from typing import Any

from orchestrator.identity import digest
from orchestrator.plan.planned_trials import confirm_seeds, planned_trials
from orchestrator.plan.types import Plan
from tests.support.specs.plans import make_arm, make_plan


def repeated_plan(
    repeats: int,
    seeds: tuple[int, ...] = (101, 102),
    *,
    others: int = 1,
    controls: int = 0,
    cross: bool = False,
    **options: Any,
) -> Plan:
    """Return a plan of a baseline, `others` compared with it, and controls, each searched `repeats` times."""
    baseline = make_arm("arm-0")
    arms = [baseline, *(make_arm(f"arm-{number}") for number in range(1, 1 + others))]
    for number in range(controls):
        name = f"control-{number}"
        control = replace(baseline, name=name, control=True, digest=digest(baseline.digest, name))
        arms.append(control)
    plan = make_plan(
        [arms[0], *(replace(arm, reference="arm-0") for arm in arms[1:])], seeds=seeds, **options
    )
    assert plan.search is not None
    assert plan.confirm is not None
    search = replace(plan.search, repeats=repeats)
    confirm = replace(plan.confirm, seeds=confirm_seeds(seeds, repeats), cross=cross)
    trials = tuple(planned_trials(plan.arms, search, confirm, plan.posthoc, plan.limits))
    return replace(plan, search=search, confirm=confirm, trials=trials)
