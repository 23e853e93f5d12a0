"""Proof of ablation: every arm is built and run; one that changes nothing is refused."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import isfinite
from typing import Any

from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.declared import Sweep
from orchestrator.plan.dimensions import one_value
from orchestrator.plan.effects import (
    FUNCTIONAL,
    LARGE,
    differ,
    differ_at_once,
    draws,
    effects,
    effects_where_searched,
    large,
    learn_otherwise_at_once,
    shows,
    undone_by,
)
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import too_large
from orchestrator.plan.moved_weights import POINTS, SEED
from orchestrator.plan.notes import notes
from orchestrator.plan.probe import LAYERS, SEVERAL_CHUNKS, Probe
from orchestrator.plan.settings import System, checked, differences
from orchestrator.plan.spaces import (
    assigned,
    common_space,
    condition_values,
    dimension_keys,
    ends,
    may_exist,
)
from orchestrator.plan.structure import tree_difference
from orchestrator.plan.types import ArmProof
from orchestrator.plan.unmoved import moves
from orchestrator.spec.types import Search
from search_spaces.algebra import without
from search_spaces.dimensions import Dimension, Fixed, Space, contains, key_of
from search_spaces.paths import MISSING, leaves, lookup, overlap, with_value
from search_spaces.wording import shown
from trainables import catalog
from trainables.assembly import batch_cost, build_model
from trainables.metrics import Metric
from trainables.settings import shallower
from trainables.training.step import misfit

DIGITS = 4
"""Significant digits of losses and norms in a plan: the last bits of a sum depend on the machine."""
NAMED = 4
"""Weights that a note names."""


def prove(
    arm: BuiltInArm, reference: BuiltInArm | None, probe: Probe, sweep: Sweep, faults: Faults
) -> ArmProof | None:
    """What building and running `arm` showed next to `reference`; what is wrong with it goes to `faults`."""
    place = ("baseline",) if arm.request.is_baseline else ("arms", arm.request.label)
    try:
        structure = probe.structure(arm.system)
        if (why := too_large(arm.system, probe.parameters)) is not None:
            raise ValueError(why)  # noqa: TRY301 - one way to say that it cannot be trained
        _require_training(arm.system)
        before = probe.structure(reference.system) if reference else structure
        run = probe.narrow(arm.system)
        loss, gradient = probe.forward(run).loss, probe.gradient(run).norm
        found = _found(arm, reference, probe, sweep)
        noted: tuple[str, ...] = ()
        if _notes_wanted(arm, probe) and (shows(found) or not reference):
            noted = _notes(arm, reference, found, probe, sweep)
    except ValueError as error:
        faults.add(f"{arm.name} cannot be trained: {error}", *place, about=("trained", str(error)))
        return None
    if not isfinite(loss) or not isfinite(gradient):
        faults.add(
            f"{arm.name} must begin with a finite loss and gradient, got {loss=} and {gradient=}",
            *place,
        )
        return None
    if reference is not None and arm.changes and not shows(found):
        _refuse_no_effect(arm, reference, found, faults)
    elif reference is not None and arm.changes and not FUNCTIONAL & set(found):
        _refuse_undone(arm, reference, probe, sweep, faults)
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
        run_with=_run_with(arm.system, run),
    )


def _found(arm: BuiltInArm, reference: BuiltInArm | None, probe: Probe, sweep: Sweep) -> tuple[str, ...]:
    """In what `arm` differs from `reference`; where in nothing, with what its search draws."""
    if reference is None:
        return ()
    found = effects(probe, reference.system, arm.system, sweep)
    if shows(found):
        return found
    drop = arm.request.drop
    return effects_where_searched(probe, reference.system, arm.system, sweep, drop) or found


def _require_training(system: System) -> None:
    """Raises ValueError where the way a step is taken does not fit the model."""
    if system.train.parts > 1 or system.train.checkpoint_activations:
        ghost = build_model(system.model, system.shape, SEED, "meta")
        if (why := misfit(ghost, system.train)) is not None:
            raise ValueError(why)


def _run_with(system: System, run: System) -> dict[str, Any]:
    """Settings of the model that was run where it is smaller than that of `system`."""
    before = dict(leaves(system.settings["model"], "model."))
    ran = shallower(run.model, LAYERS).model_dump(mode="json")
    return {path: value for path, value in leaves(ran, "model.") if before.get(path) != value}


def rounded(value: float) -> float:
    """`value` with as many digits as are the same on every machine."""
    return float(f"{value:.{DIGITS}g}")


def _refuse_no_effect(arm: BuiltInArm, reference: BuiltInArm, found: Sequence[str], faults: Faults) -> None:
    paths = list(arm.request.cell if arm.request.is_baseline else arm.request.changes)
    alone = f"; that {' and '.join(found)} differ shows in nothing" if found else ""
    faults.add(
        f"{arm.name} changes nothing against {reference.name}: with {', '.join(paths)} set, what is "
        "computed, learned, measured and written is the same (losses, gradients and layers run at several "
        f"weights, long inputs, counted operations){alone}. Drop it, or change something that has an effect",
        *arm.request.keys(paths[0]),
    )


def _refuse_undone(
    arm: BuiltInArm, reference: BuiltInArm, probe: Probe, sweep: Sweep, faults: Faults
) -> None:
    """What acts in training alone must act beside what its search draws, or no trial tells of it."""
    undone = undone_by(probe, reference.system, arm.system, sweep, arm.request.drop)
    if undone is None:
        return
    searched, tried = undone
    paths = list(arm.request.cell if arm.request.is_baseline else arm.request.changes)
    faults.add(
        f"{arm.name} changes nothing against {reference.name} beside what its search draws: with {searched} "
        f"at {', '.join(map(shown, tried))} what is computed, learned, measured and written is the same, "
        f"with {', '.join(paths)} set or not. Change the range, or drop the arm",
        *arm.request.keys(paths[0]),
    )


def _notes_wanted(arm: BuiltInArm, probe: Probe) -> bool:
    """A model from outside may fail where a note is looked for, which is a fault."""
    return not probe.faults_only or catalog.is_outside("models", arm.system.settings["model"]["name"])


def _notes(
    arm: BuiltInArm, reference: BuiltInArm | None, found: Sequence[str], probe: Probe, sweep: Sweep
) -> tuple[str, ...]:
    """What to look at twice; nothing is refused for it. Raises ValueError for what cannot be run."""
    # Large models are looked at as narrow ones, whose weights have the same names.
    looked = not large(probe, probe.narrow(arm.system))
    # What nothing reaches in the arm it is compared with is reported there.
    known = _unreached(reference, probe) if reference and looked else ()
    unreached = probe.unreached(arm.system, known) if looked else ()
    remarks = list(notes(arm, reference, probe)) if reference else []
    if reference is not None:
        remarks += _idle_halves(arm, reference, probe, sweep)
        if found == ("measuring",):
            remarks.append("it learns what it is compared with learns, and is only measured otherwise")
    parts, whole = arm.system.train.parts, batch_cost(arm.system.model)
    if parts > 1 and whole is not None and arm.system.train.auxiliary_weight:
        remarks.append(
            f"{whole} is that of each of {parts} parts of a batch, as on so many GPUs, not of the batch"
        )
    if unreached:
        more = f" and {len(unreached) - NAMED} more" if len(unreached) > NAMED else ""
        remarks.append(
            f"no gradient reaches {', '.join(unreached[:NAMED])}{more} at any of the {POINTS} weights tried, "
            f"nor on inputs of {min(SEVERAL_CHUNKS[-1], arm.system.shape.length_max)} tokens"
        )
    if not looked:
        remarks.append(
            "whether a gradient reaches every weight was not looked at: that takes too long in a model of "
            f"more than {LARGE:,} parameters which cannot be tried with narrower layers"
        )
    return tuple(remarks)


def _unreached(arm: BuiltInArm, probe: Probe) -> tuple[str, ...]:
    """Weights that no gradient reaches; none of a model that is not looked at."""
    return () if large(probe, probe.narrow(arm.system)) else probe.unreached(arm.system)


def _idle_halves(arm: BuiltInArm, reference: BuiltInArm, probe: Probe, sweep: Sweep) -> Iterator[str]:
    """Fields among several that could be left as they were, and the arm would be the same."""
    paths = () if arm.request.is_baseline else tuple(arm.request.changes)
    for path in paths if len(paths) > 1 else ():
        before = lookup(reference.system.settings, path)
        if before is MISSING or path.endswith(".name"):
            continue
        left = checked(with_value(arm.system.settings, path, before))
        if isinstance(left, System) and not differ(probe, left, arm.system, sweep, narrow=True):
            yield f"setting {path} changes nothing beside the rest; leave it out, or see what it needs"


def check_same(arms: Sequence[CheckedArm[Any]], faults: Faults) -> None:
    """Two arms must not be one system under two names, nor two cells of the grid."""
    seen: dict[Hashable, CheckedArm[Any]] = {}
    same = set[str]()
    for arm in arms:
        if arm.request.control:
            continue
        other = seen.setdefault(key_of(arm.system.settings), arm)
        if other is arm or arm.reference in same:  # what cells have in common all arms have in both
            continue
        if arm.request.is_baseline:
            same.add(arm.name)
            axis = _axis(arm.request.cell, other.request.cell)
            faults.add(
                f"{arm.name} is the same system as {other.name}: drop one of them", *arm.request.keys(axis)
            )
        elif not other.request.is_baseline:
            faults.add(f"is the same system as {other.name}: drop one of them", "arms", arm.request.label)


def _axis(cell: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """An axis on which two cells differ as they are written, if there is one."""
    differing = (path for path in cell if key_of(cell[path]) != key_of(other.get(path, MISSING)))
    return next(differing, next(iter(cell)))


def check_dimensions(
    arm: BuiltInArm,
    space: Space,
    search: Search,
    probe: Probe,
    faults: Faults,
    *,
    sweep: Sweep,
    metrics: Sequence[Metric],
) -> None:
    """A dimension that changes nothing in an arm must be dropped: it only makes the search less thorough.

    One that no objective can see is reported of the baseline: what is chosen of it would be chance.
    """
    for dimension in space.dimensions:
        if one_value(dimension, search):  # reported already
            continue
        try:
            why = _in_vain(arm, dimension, space, probe, sweep=sweep, search=search, metrics=metrics)
        except ValueError:
            continue
        if why and arm.request.is_baseline:
            faults.add(
                f"varies {dimension.path}, which changes {why} in {arm.name}",
                *dimension_keys(dimension.path, search),
            )
        elif why == NOTHING:
            faults.add(
                f"searches {dimension.path}, which changes nothing in {arm.name}: "
                f"add {dimension.path} to the arm's drop",
                "arms",
                arm.request.label,
            )


NOTHING = "nothing"


def _in_vain(
    arm: BuiltInArm,
    dimension: Dimension,
    space: Space,
    probe: Probe,
    *,
    sweep: Sweep,
    search: Search,
    metrics: Sequence[Metric],
) -> str | None:
    """What alone a dimension changes in `arm` that no search asks for; None where it changes an objective.

    Raises ValueError for what cannot be run.
    """
    found = systems(arm, dimension, space)
    if len(found) < 2 or _shows_at_once(arm, dimension, found, probe):
        return None
    objectives, differing = [each.metric for each in search.objectives], False
    for first, *rest in chain([found], filter(None, _beside_others(arm, dimension, space))):
        if not any(differ(probe, first, each, sweep) for each in reversed(rest)):
            continue
        differing = True
        if not arm.request.is_baseline:  # an arm must not search what changes nothing there, and no more
            return None
        for each in reversed(rest):
            if moves(probe, first, each, sweep, objectives=objectives, metrics=metrics):
                return None
    return f"no objective ({', '.join(objectives)})" if differing else NOTHING


def check_dropped(
    arm: BuiltInArm, space: Space, search: Search, probe: Probe, faults: Faults, *, sweep: Sweep
) -> None:
    """An arm that is searched must be tuned in every field of `train` that acts in it, unless it sets it.

    That a field of the model or the task stays as in the baseline may be what the arm is. One that drops
    everything is not searched, which its plan says.
    """
    common = common_space(search)
    if all(isinstance(each.domain, Fixed) for each in space.dimensions):
        return
    for place, path in enumerate(arm.request.drop):
        tunes = path in common.paths and path.startswith("train.")
        if not tunes or any(overlap(path, each) for each in arm.request.changes):
            continue
        dimension, beside = common[path], without(common, [each for each in arm.request.drop if each != path])
        own = lookup(arm.system.settings, path)
        if own is MISSING or not may_exist(dimension, beside, arm):
            continue
        found = systems(arm, dimension, beside)
        with suppress(ValueError):  # what cannot be run there may be dropped
            if len(found) == len(ends(dimension.domain)) and _any_differ(probe, found, sweep):
                faults.add(
                    f"must be what {arm.name} lacks or sets, or what changes nothing in it, got {path}, "
                    f"which acts there and would stay {shown(own)} while others are tuned: leave it out, or "
                    "drop all that is searched, for an arm that is not tuned",
                    *("arms", arm.request.label, "drop", place),
                    about=("dropped", arm.request.label, path),
                )


def _shows_at_once(arm: BuiltInArm, dimension: Dimension, found: Sequence[System], probe: Probe) -> bool:
    """Whether an end of `dimension` differs in one forward pass from the arm as it is, which has run already.

    Looks only where both can be drawn, differ in nothing else, and are quick to run.
    """
    own, other = lookup(arm.system.settings, dimension.path), found[-1]
    if own is MISSING or isinstance(own, list | dict):
        return False
    changed = {each.path for each in differences(arm.system.settings, other.settings)}
    if changed != {dimension.path} or not contains(dimension.domain, own) or large(probe, other):
        return False
    if dimension.path.startswith("model."):
        return differ_at_once(probe, arm.system, other)
    # Whether an objective can tell of it is asked of the baseline alone.
    return not arm.request.is_baseline and learn_otherwise_at_once(probe, arm.system, other)


def _any_differ(probe: Probe, found: Sequence[System], sweep: Sweep) -> bool:
    return len(found) > 1 and any(differ(probe, found[0], each, sweep) for each in reversed(found[1:]))


def _beside_others(arm: BuiltInArm, dimension: Dimension, space: Space) -> Iterator[list[System]]:
    """As `systems`, beside an end of each other dimension in place of the arm's own value."""
    for draw in draws(space, [dimension.path]):
        settings = assigned(arm.system.settings, draw)
        if dimension.path not in draw and settings is not None:
            yield _at_ends(settings, dimension, space)


def systems(arm: BuiltInArm, dimension: Dimension, space: Space) -> list[System]:
    """The arm at every end of `dimension`, those that cannot be built left out."""
    return _at_ends(arm.system.settings, dimension, space)


def _at_ends(settings: Mapping[str, Any], dimension: Dimension, space: Space) -> list[System]:
    found = []
    for path, value in condition_values(dimension, space).items():
        settings = with_value(settings, path, value)
    for value in ends(dimension.domain):
        system = checked(with_value(settings, dimension.path, value))
        if isinstance(system, System):
            found.append(system)
    return found
