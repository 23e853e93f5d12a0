"""Proof of ablation: every arm is built and run; one that changes nothing is refused."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.effects import FUNCTIONAL, differ, effects, tree_difference
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import too_large
from orchestrator.plan.notes import notes
from orchestrator.plan.probe import Probe
from orchestrator.plan.settings import System, checked
from orchestrator.plan.spaces import condition_values, dimension_keys, ends
from orchestrator.plan.types import ArmProof
from orchestrator.spec.types import Search
from search_spaces.dimensions import Dimension, Space
from search_spaces.paths import leaves, with_value

DIGITS = 4
"""Significant digits of losses and norms in a plan: the last bits of a sum depend on the machine."""


def prove(arm: BuiltInArm, reference: BuiltInArm | None, probe: Probe, faults: Faults) -> ArmProof | None:
    """What building and running `arm` showed next to `reference`; what is wrong with it goes to `faults`."""
    place = ("baseline",) if arm.request.is_baseline else ("arms", arm.request.label)
    try:
        structure = probe.structure(arm.system)
        if (why := too_large(arm.system, structure.parameters)) is not None:
            raise ValueError(why)  # noqa: TRY301 - one way to say that it cannot be trained
        before = probe.structure(reference.system) if reference else structure
        loss, gradient = probe.forward(arm.system).loss, probe.gradient(arm.system).norm
        found = effects(probe, reference.system, arm.system) if reference else ()
        noted = notes(arm, reference, probe) if reference else ()
    except ValueError as error:
        faults.add(f"{arm.name} cannot be trained: {error}", *place, about=("trained", str(error)))
        return None
    if not isfinite(loss) or not isfinite(gradient):
        faults.add(
            f"{arm.name} must begin with a finite loss and gradient, got {loss=} and {gradient=}",
            *place,
        )
        return None
    if reference is not None and arm.changes and not found:
        _refuse_no_effect(arm, reference, faults)
    return ArmProof(
        arm=arm.name,
        parameters=structure.parameters,
        module_tree_added=tree_difference(before, structure),
        module_tree_removed=tree_difference(structure, before),
        flops_min=structure.flops_min,
        flops_max=structure.flops_max,
        loss=rounded(loss),
        gradient_norm=rounded(gradient),
        functional_change=bool(FUNCTIONAL & set(found)),
        evidence=found,
        notes=noted,
    )


def rounded(value: float) -> float:
    """`value` with as many digits as are the same on every machine."""
    return float(f"{value:.{DIGITS}g}")


def _refuse_no_effect(arm: BuiltInArm, reference: BuiltInArm, faults: Faults) -> None:
    paths = list(arm.request.cell if arm.request.is_baseline else arm.request.changes)
    faults.add(
        f"{arm.name} changes nothing against {reference.name}: with {', '.join(paths)} set, "
        "weights, FLOPs, loss, gradient and layers run are the same to the last bit. Drop it, or change "
        "something that has an effect",
        *arm.request.keys(paths[0]),
    )


def check_same(arms: Sequence[CheckedArm[Any]], faults: Faults) -> None:
    """Two arms must not be one system under two names."""
    seen: dict[str, CheckedArm[Any]] = {}
    for arm in arms:
        key = repr(sorted(leaves(arm.system.settings)))
        if (other := seen.setdefault(key, arm)) is not arm and not other.request.is_baseline:
            faults.add(f"is the same system as {other.name}: drop one of them", "arms", arm.request.label)


def check_dimensions(arm: BuiltInArm, space: Space, search: Search, probe: Probe, faults: Faults) -> None:
    """A dimension that changes nothing in an arm must be dropped: it only makes the search less thorough."""
    for dimension in space.dimensions:
        found = systems(arm, dimension, space)
        try:
            if len(found) < 2 or any(differ(probe, found[0], other) for other in reversed(found[1:])):
                continue
        except ValueError:
            continue
        if arm.request.is_baseline:
            faults.add(
                f"varies {dimension.path}, which changes nothing in {arm.name}",
                *dimension_keys(dimension.path, search),
            )
        else:
            faults.add(
                f"searches {dimension.path}, which changes nothing in {arm.name}: "
                f"add {dimension.path} to the arm's drop",
                "arms",
                arm.request.label,
            )


def systems(arm: BuiltInArm, dimension: Dimension, space: Space) -> list[System]:
    """The arm at every end of `dimension`, those that cannot be built left out."""
    settings = arm.system.settings
    found = []
    for path, value in condition_values(dimension, space).items():
        settings = with_value(settings, path, value)
    for value in ends(dimension.domain):
        system = checked(with_value(settings, dimension.path, value))
        if isinstance(system, System):
            found.append(system)
    return found
