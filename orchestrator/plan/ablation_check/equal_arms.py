"""Refuse two arms of a plan that behave identically under two names."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from orchestrator.errors import FaultCode
from orchestrator.identity import canonical
from orchestrator.plan.ablation_check.differences import evidence, is_evidence
from orchestrator.plan.ablation_check.effective_settings import SweepFacts, effective_settings
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults


def check_equal_arms(arms: Sequence[BuiltInArm], probe: Probe, sweep: SweepFacts, faults: Faults) -> None:
    """Add a fault for every arm that behaves like an earlier one, unless it has `allow_no_effect`."""
    # Only arms with equal effective settings of task and training are run and compared.
    arms_by_evidence = defaultdict[str, list[BuiltInArm]](list)
    for arm in arms:
        if not arm.request.control and not arm.request.allow_no_effect:
            settings = effective_settings(arm.system, sweep)
            effective = {key: value for key, value in settings.items() if key != "loss"}
            arms_by_evidence[canonical([effective, dict(arm.request.context)])].append(arm)
    reported_arms = set[str]()
    for group in arms_by_evidence.values():
        for equal_arm, later_arm in combinations(group, 2):
            # `check_built_in_arm` compares an arm with its reference.
            if later_arm.reference == equal_arm.name or later_arm.name in reported_arms:
                continue
            has_other_settings = later_arm.system.settings != equal_arm.system.settings
            if has_other_settings and _behave_alike(later_arm, equal_arm, probe, sweep):
                reported_arms.add(later_arm.name)
                label = later_arm.request.label
                keys = ("grid",) if later_arm.request.is_baseline else ("arms", label)
                message = f"behaves like {equal_arm.name} although its settings differ: remove one of them"
                faults.add(message, *keys, about=("twin", label), code=FaultCode.ARM_HAS_NO_EFFECT)


def _behave_alike(first: BuiltInArm, second: BuiltInArm, probe: Probe, sweep: SweepFacts) -> bool:
    """Return whether both arms behave identically; False if memory is insufficient to run them."""
    left_out = {*first.request.drop, *second.request.drop}
    try:
        return not is_evidence(evidence(probe, (second.system, first.system), sweep, left_out))
    except ValueError:
        return False
