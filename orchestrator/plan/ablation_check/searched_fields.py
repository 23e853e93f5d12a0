"""Check that every searched field has an effect in an arm, and affects at least one objective.

Some fields never affect an objective. The field `model.early_exit` changes speed but no result. Decoding
settings change only metrics of written answers. Trials that differ only in a field without an effect have
equal results, so the search would choose among them arbitrarily.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.differences import INSUFFICIENT_ASPECTS, evidence, is_evidence
from orchestrator.plan.ablation_check.effective_settings import SweepFacts
from orchestrator.plan.ablation_check.passes import example_batch
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.dimensions import single_value_problem
from orchestrator.plan.space_check.metrics import VALID, answer_metrics
from orchestrator.plan.space_check.spaces import dimension_keys, enabling_params, range_ends
from orchestrator.plan.training_code.settings import ParsedSettings, validate_draw
from orchestrator.spec.types import Search
from search_spaces.dimensions import Dimension, Space
from trainables.metrics import Metric, look_up
from trainables.training import evaluate, workload

WORK_DIFFERENCES = frozenset({"layers run", "operations", "layers"})
"""Differences that only affect the amount of computation."""


@dataclass(frozen=True, slots=True)
class SearchingArm:
    """An arm with the settings of its search."""

    arm: BuiltInArm
    search: Search
    sweep: SweepFacts
    """Properties of the spec, with the search space of the arm."""
    metrics: Sequence[Metric]


def check_dimensions(searching: SearchingArm, probe: Probe, faults: Faults) -> None:
    """Add faults for dimensions without an effect in an arm, since they make the search less thorough.

    Dimensions without an effect on any objective are noted once, for the baseline.
    """
    arm, search, sweep = searching.arm, searching.search, searching.sweep
    objectives = [objective.metric for objective in search.objectives]
    for dimension in sweep.search_space.dimensions:
        path, aspects, idle = dimension.path, set[str](), INSUFFICIENT_ASPECTS
        first, *others = settings_at_range_ends(arm.system.settings, dimension, sweep.search_space) or [
            arm.system
        ]
        if not others or single_value_problem(dimension, search):  # reported already
            continue
        try:
            if arm.request.is_baseline:  # for other arms any effect suffices
                idle = INSUFFICIENT_ASPECTS | _idle_aspects(objectives, searching.metrics, first)
            for other in reversed(others):
                if not is_evidence(aspects, idle):
                    aspects |= {*evidence(probe, (first, other), sweep, [path], idle)}
        except ValueError:  # the ablation check reports arms that cannot be run
            continue
        if is_evidence(aspects, idle):
            continue
        if arm.request.is_baseline:
            reason = (
                f"affects no objective ({', '.join(objectives)})" if is_evidence(aspects) else "has no effect"
            )
            message = f"varies {path}, which {reason} in {arm.name}"
            keys = dimension_keys(path, search)
        else:
            message = f"searches {path}, which has no effect in {arm.name}: add {path} to the arm's drop"
            keys = ("arms", arm.request.label)
        faults.add(message, *keys, code=FaultCode.PARAM_HAS_NO_EFFECT)


def _idle_aspects(
    objectives: Sequence[str], metrics: Sequence[Metric], system: ParsedSettings
) -> frozenset[str]:
    """Return the aspects that no objective measures."""
    declared = [look_up(metrics, name) for name in objectives]
    counts_work = any(each.moves_with == evaluate.SAVED or each in workload.metrics for each in declared)
    answers = {f"{VALID}/{name}" for name in answer_metrics(system, example_batch(system))}
    writing = frozenset({"writing"} if answers.isdisjoint(objectives) else ())
    return writing if counts_work else writing | WORK_DIFFERENCES


def settings_at_range_ends(
    settings: Mapping[str, Any], dimension: Dimension, space: Space
) -> list[ParsedSettings]:
    """Return `settings` with `dimension` at each of its ends, except systems that cannot be built."""
    params = enabling_params(dimension, space, settings) or {}
    values = range_ends(dimension.domain)
    variants = [validate_draw(settings, {**params, dimension.path: value}) for value in values]
    return [system for system in variants if isinstance(system, ParsedSettings)]
