"""Refuse two arms of a plan that behave identically under two names."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from orchestrator.identity import canonical
from orchestrator.plan.ablation_check.acting_settings import Sweep, acting_settings
from orchestrator.plan.ablation_check.differences import FIRST, differ, evidence_at_searched_values
from orchestrator.plan.ablation_check.passes import close
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults


def check_equal_arms(arms: Sequence[BuiltInArm], probe: Probe, sweep: Sweep, faults: Faults) -> None:
    """Note every arm that behaves like an earlier one, unless it has `allow_no_effect`."""
    # Only arms with equal acting settings of task and training are run and compared.
    alike = defaultdict[str, list[BuiltInArm]](list)
    for arm in arms:
        if not arm.request.control and not arm.request.allow_no_effect:
            acting = {
                key: value for key, value in acting_settings(arm.system, sweep).items() if key != "loss"
            }
            alike[canonical([acting, dict(arm.request.context)])].append(arm)
    told = set[str]()
    for group in alike.values():
        for other, one in combinations(group, 2):
            # `prove` compares an arm with its reference.
            if one.reference == other.name or one.name in told:
                continue
            if one.system.settings != other.system.settings and _behave_alike(one, other, probe, sweep):
                told.add(one.name)
                faults.add(
                    f"behaves like {other.name} although its settings differ: remove one of them",
                    *(("grid",) if one.request.is_baseline else ("arms", one.request.label)),
                    about=("twin", one.request.label),
                )


def _behave_alike(one: BuiltInArm, other: BuiltInArm, probe: Probe, sweep: Sweep) -> bool:
    """Return whether both arms behave identically; False if memory is insufficient to run them."""
    try:
        pair = probe.narrow_pair(other.system, one.system)
        if not close(*(probe.measure(system, FIRST).loss for system in pair)):
            return False
        if differ(probe, other.system, one.system, sweep):
            return False
        left_out = {*one.request.drop, *other.request.drop}
        return not evidence_at_searched_values(probe, other.system, one.system, sweep, left_out)
    except ValueError:
        return False
