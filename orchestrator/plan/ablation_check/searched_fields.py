"""Check that every searched field has an effect in an arm, and affects at least one objective.

Some fields never affect an objective. The field `model.early_exit` changes speed but no result. Decoding
settings change only metrics of written answers. Trials that differ only in a field without an effect have
equal results, so the search would choose among them arbitrarily.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.differences import differ, differences, draws
from orchestrator.plan.ablation_check.effective_settings import Sweep
from orchestrator.plan.ablation_check.passes import LENGTH, synthetic_examples
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.dimensions import single_value_problem
from orchestrator.plan.space_check.metrics import VALID, answer_metrics
from orchestrator.plan.space_check.spaces import (
    assign_params,
    dimension_keys,
    enabling_params,
    ends,
)
from orchestrator.plan.training_code.settings import System, check_drawn
from orchestrator.spec.types import Search
from search_spaces.dimensions import Dimension, Space
from trainables.metrics import Metric, look_up
from trainables.training import evaluate, workload

NOTHING = "nothing"
WORK_DIFFERENCES = frozenset({"layers run", "operations", "layers", "FLOPs"})
"""Differences that only affect the amount of computation."""


@dataclass(frozen=True, slots=True)
class ArmSearchSpace:
    """An arm with its search space and search settings."""

    arm: BuiltInArm
    space: Space
    search: Search
    sweep: Sweep
    metrics: Sequence[Metric]


def check_dimensions(arm_space: ArmSearchSpace, probe: Probe, faults: Faults) -> None:
    """Add faults for dimensions without an effect in an arm, since they make the search less thorough.

    Dimensions without an effect on any objective are noted once, for the baseline.
    """
    arm = arm_space.arm
    for dimension in arm_space.space.dimensions:
        if single_value_problem(dimension, arm_space.search):  # reported already
            continue
        try:
            reason = _unaffected_aspect(arm_space, dimension, probe)
        except ValueError:  # the ablation check reports arms that cannot be run
            continue
        if reason and arm.request.is_baseline:
            message = f"varies {dimension.path}, which changes {reason} in {arm.name}"
            keys = dimension_keys(dimension.path, arm_space.search)
            faults.add(message, *keys, code=FaultCode.PARAM_HAS_NO_EFFECT)
        elif reason == NOTHING:
            message = (
                f"searches {dimension.path}, which changes nothing in {arm.name}: "
                f"add {dimension.path} to the arm's drop"
            )
            faults.add(message, "arms", arm.request.label, code=FaultCode.PARAM_HAS_NO_EFFECT)


def _unaffected_aspect(arm_space: ArmSearchSpace, dimension: Dimension, probe: Probe) -> str | None:
    """Return the aspect that `dimension` changes instead of an objective; None if it changes an objective.

    Raises:
        ValueError: A system cannot be run.
    """
    variants = systems_at_ends(arm_space.arm.system.settings, dimension, arm_space.space)
    if len(variants) < 2:
        return None
    reason, is_baseline = NOTHING, arm_space.arm.request.is_baseline
    for first, *rest in chain([variants], filter(None, _systems_at_other_ends(arm_space, dimension))):
        for other_system in reversed(rest):
            if differ(probe, first, other_system, arm_space.sweep):
                # For other arms any effect suffices.
                if not is_baseline or _can_move_objective(arm_space, first, other_system, probe):
                    return None
                reason = f"no objective ({', '.join(_objectives(arm_space))})"
    return reason


def _can_move_objective(arm_space: ArmSearchSpace, first: System, second: System, probe: Probe) -> bool:
    """Return whether some objective can differ between `first` and `second`."""
    objectives, idle_words = set(_objectives(arm_space)), set[str]()
    if not any(_counts_work(name, arm_space.metrics) for name in objectives):
        idle_words |= WORK_DIFFERENCES
    if _answer_metrics(first).isdisjoint(objectives):
        idle_words.add("writing")
    return any(set(words) - idle_words for words in differences(probe, first, second, arm_space.sweep))


def _objectives(arm_space: ArmSearchSpace) -> list[str]:
    return [objective.metric for objective in arm_space.search.objectives]


def _systems_at_other_ends(arm_space: ArmSearchSpace, dimension: Dimension) -> Iterator[list[System]]:
    """Yield the systems of `dimension` again, each time with another dimension at one of its ends."""
    for draw in draws(arm_space.space, arm_space.arm.system.settings, [dimension.path]):
        settings = assign_params(arm_space.arm.system.settings, draw)
        if dimension.path not in draw and settings is not None:
            yield systems_at_ends(settings, dimension, arm_space.space)


def systems_at_ends(settings: Mapping[str, Any], dimension: Dimension, space: Space) -> list[System]:
    """Return `settings` with `dimension` at each of its ends, except systems that cannot be built."""
    params = enabling_params(dimension, space, settings) or {}
    values = ends(dimension.domain)
    variants = [check_drawn(settings, {**params, dimension.path: value}) for value in values]
    return [system for system in variants if isinstance(system, System)]


def _answer_metrics(system: System) -> set[str]:
    """Return the names of all metrics of written answers."""
    batch = synthetic_examples(system.shape, min(LENGTH, system.shape.length_max))
    return {f"{VALID}/{name}" for name in answer_metrics(system, batch)}


def _counts_work(name: str, metrics: Sequence[Metric]) -> bool:
    metric = look_up(metrics, name)
    return metric.moves_with == evaluate.SAVED or metric in workload.metrics
