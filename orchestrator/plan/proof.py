"""Proof of ablation: an arm that changes nothing, or more than it declares, is refused."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.effects import FUNCTIONAL, differ, effects, reshaped_share, tree_difference
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import too_large
from orchestrator.plan.probe import Probe
from orchestrator.plan.settings import System, checked, leaves
from orchestrator.plan.spaces import condition_values, dimension_keys, ends
from orchestrator.plan.types import ArmProof, Change
from orchestrator.spec.types import Search
from search_spaces.dimensions import Dimension, Space
from search_spaces.paths import MISSING, lookup, with_value

DIGITS = 4
"""Significant digits of losses and norms in a plan: the last bits of a sum depend on the machine."""
MOST = 0.5
"""A field that reshapes more than this share of the shared weights is a size of the whole model."""
_TAKES_AWAY = re.compile(r"^(?:minus|no|without)[-_](.+)$")


def prove(arm: BuiltInArm, reference: BuiltInArm | None, probe: Probe, faults: Faults) -> ArmProof | None:
    """What building and running `arm` showed next to `reference`; what is wrong with it goes to `faults`."""
    place = ("baseline",) if arm.request.is_baseline else ("arms", arm.request.label)
    try:
        if (why := too_large(arm.system)) is not None:
            raise ValueError(why)  # noqa: TRY301 - one way to say that it cannot be trained
        structure = probe.structure(arm.system)
        before = probe.structure(reference.system) if reference else structure
        loss, gradient = probe.forward(arm.system).loss, probe.gradient(arm.system).norm
        found = effects(probe, reference.system, arm.system) if reference else ()
    except ValueError as error:
        faults.add(f"{arm.name} cannot be trained: {error}", *place, about=("trained", str(error)))
        return None
    if not isfinite(loss) or not isfinite(gradient):
        faults.add(
            f"{arm.name} must begin with a finite loss and gradient, got {loss=} and {gradient=}",
            *place,
        )
        return None
    if reference is not None:
        if arm.changes and not found:
            _refuse_no_effect(arm, reference, faults)
        _refuse_hidden_size(arm, reference, probe, faults)
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


def _refuse_hidden_size(arm: BuiltInArm, reference: BuiltInArm, probe: Probe, faults: Faults) -> None:
    """A size of the whole model, changed beside something else, must be named: the effect may be its own."""
    paths = [path for path in arm.request.changes if path.startswith("model.") and path != "model.name"]
    if len(paths) < 2 or "model.name" in arm.request.changes:
        return
    sizes = [path for path in paths if _is_size(path, arm, reference, probe)]
    words = _words(f"{arm.request.label} {arm.request.why}")
    for path in sizes if len(sizes) < len(paths) else ():
        field = path.rsplit(".", 1)[-1]
        if field not in words:
            others = ", ".join(each for each in paths if each not in sizes)
            faults.add(
                f"{arm.name} changes {path}, and with it most weights, beside {others}: what it shows "
                f"could come from either. Make it an arm of its own, or say {field!r} in the arm's why",
                *arm.request.keys(path),
            )


def _is_size(path: str, arm: BuiltInArm, reference: BuiltInArm, probe: Probe) -> bool:
    """Whether `path` alone reshapes most of the weights that remain."""
    before = lookup(reference.system.settings, path)
    if before is MISSING:
        return False
    without = checked(with_value(arm.system.settings, path, before))
    if isinstance(without, list):
        return False
    return reshaped_share(probe.structure(without), probe.structure(arm.system)) > MOST


def check_names(arms: Sequence[BuiltInArm], faults: Faults) -> None:
    """An arm called after what it takes away must touch it; names that were swapped are found here."""
    settings = {arm.name: arm.system.settings for arm in arms}
    for arm in arms:
        taken = _TAKES_AWAY.match(arm.request.label)
        if taken is None or not arm.changes or arm.reference not in settings:
            continue
        named = _words(taken.group(1)) & _field_words(arm.system.settings, settings[arm.reference])
        touched = set[str]().union(*(_touched(each.path, each.before, each.after) for each in arm.changes))
        if named and (not named & touched or not _takes_away(taken.group(1), named, arm.changes)):
            paths = ", ".join(change.path for change in arm.changes)
            faults.add(
                f"is named for taking away {' and '.join(sorted(named))}, which stays; it changes {paths}. "
                "Were two arms swapped? Otherwise give it another name",
                "arms",
                arm.request.label,
            )


def _takes_away(name: str, fields: set[str], changes: Sequence[Change]) -> bool:
    """Whether an arm called after one field changes that field itself and not only what lies inside it."""
    return name not in fields or any(change.path.rsplit(".", 1)[-1] == name for change in changes)


def _touched(path: str, *values: Any) -> set[str]:
    found = _words(path)
    for value in values:
        if isinstance(value, Mapping):
            found |= _field_words({"": value})
        elif isinstance(value, str):
            found |= _words(value)
    return found


def _field_words(*settings: Mapping[str, Any]) -> set[str]:
    fields = (path for each in settings for path, _ in leaves(each))
    return {word for path in fields for word in _words(path.partition(".")[2])} - {"name"}


def _words(text: str) -> set[str]:
    """Words of a name, path or sentence; `max_layers` gives itself and its parts."""
    whole = set(re.findall(r"[a-z0-9_]+", text.lower()))
    return whole | {part for word in whole for part in word.split("_") if part}


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
