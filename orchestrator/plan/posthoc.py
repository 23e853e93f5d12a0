"""Readings of confirmed checkpoints under other settings: each must be possible and show something."""

from collections.abc import Sequence

from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.effects import quick_first, reads_alike
from orchestrator.plan.faults import Faults
from orchestrator.plan.moved_weights import POINTS
from orchestrator.plan.probe import READ_LENGTH, Probe
from orchestrator.plan.settings import System, checked
from orchestrator.plan.spaces import common_space
from orchestrator.spec.types import Spec
from search_spaces.dimensions import Value, same
from search_spaces.paths import MISSING, leaves, lookup, with_value
from search_spaces.wording import hint, shown
from trainables.acting import task_acting
from trainables.task_catalog import settled, splits, training_only


def check_posthoc(spec: Spec, arms: Sequence[BuiltInArm], probe: Probe, faults: Faults) -> None:
    """Posthoc settings must exist in the baseline, leave every weight as it is, and change what is read."""
    for path, values in spec.posthoc.items():
        if lookup(arms[0].system.settings, path) is MISSING:
            known = [field for field, _ in leaves(arms[0].system.settings) if not field.startswith("train.")]
            faults.add(f"the baseline has no field {path}. {hint(path, known)}", "posthoc", path)
            continue
        having = [arm for arm in arms if lookup(arm.system.settings, path) is not MISSING]
        refused = [_check_value(spec, having, (path, place), probe, faults) for place in range(len(values))]
        if not any(refused) and (why := _unread(spec, having, path, values, probe)):
            faults.add(f"changes nothing that is read: {why}; leave it out", "posthoc", path)


def _check_value(
    spec: Spec, arms: Sequence[BuiltInArm], at: tuple[str, int], probe: Probe, faults: Faults
) -> bool:
    """Whether there is something wrong with one value; that goes to `faults`."""
    (path, place), refused = at, False
    value = spec.posthoc[path][place]
    for arm in arms:
        if why := _unreadable(spec, arm, path, value, probe):
            faults.add(f"{arm.name} {why}", "posthoc", path, place, about=(path, place, why))
            refused = True
    if not refused and all(_has_already(spec, arm, path, value) for arm in arms):
        faults.add(
            f"must differ from what is trained: {shown(value)} is what every arm has already, and is read so "
            "anyway; leave it out",
            "posthoc",
            path,
            place,
        )
        return True
    return refused


def _has_already(spec: Spec, arm: BuiltInArm, path: str, value: Value) -> bool:
    searched = spec.search is not None and path in common_space(spec.search).paths
    if searched and path not in arm.request.drop:
        return False
    found = lookup(arm.system.settings, path)
    return not isinstance(found, list | dict) and same(found, value)


def _unreadable(spec: Spec, arm: BuiltInArm, path: str, value: Value, probe: Probe) -> str | None:
    """Why a checkpoint of `arm` cannot be read with `value` at `path`, said of the arm."""
    found = checked(with_value(arm.system.settings, path, value))
    if isinstance(found, list):
        reasons = "; ".join(problem.message for problem in found)
        return f"cannot have {path} = {shown(value)}: {reasons}"
    try:
        before = probe.structure(arm.system)
    except ValueError:
        return None  # what cannot be built as it is, is refused by the proof
    try:
        after = probe.shapes(found)
    except ValueError as error:
        return f"cannot be built with {path} = {shown(value)}: {error}"
    if before.saved != after.saved:
        return (
            f"has other weights with {path} = {shown(value)}, "
            "so a trained checkpoint cannot be read with it: make it an arm"
        )
    return _other_data(spec, arm.system, found, f"{path} = {shown(value)}")


def _other_data(spec: Spec, before: System, after: System, setting: str) -> str | None:
    """Why the splits of `after` cannot be read by what was trained on those of `before`."""
    wanted = spec.confirm.splits if spec.confirm is not None else ()
    had, has = ({each.name for each in splits(system.task)} for system in (before, after))
    if lost := (had - has).intersection(wanted):
        return f"has no split {', '.join(sorted(lost))} with {setting}"
    if _learns_otherwise(before, after):
        return (
            f"learned from other data than {setting} gives, so that test samples may be among those it was "
            "trained on: make it an arm"
        )
    return None


def _learns_otherwise(before: System, after: System) -> bool:
    """Whether another setting of the task changes what is trained on or selected by."""
    return _learned(before) != _learned(after)


def _learned(system: System) -> dict[str, Value]:
    """Fields of the task that decide what is trained on or selected by, without those that no test knows."""
    read = [info.name for info in splits(system.task) if info.role != "test"]
    idle = training_only(system.task)  # told as what changes nothing that is read
    return {
        name: value for name, value in task_acting(settled(system.task), read).items() if name not in idle
    }


def _unread(
    spec: Spec, arms: Sequence[BuiltInArm], path: str, values: Sequence[Value], probe: Probe
) -> str | None:
    """Why no value of `path` makes a difference to any arm."""
    root, _, field = path.partition(".")
    if root == "task":
        return _untested(spec, arms, path, values)
    if root == "train":
        writing = [arm for arm in arms if arm.system.shape.head == "sequence"]
        if not writing:
            return "no arm writes answers token by token"
        drawn = spec.search is not None and "train.beam_size" in common_space(spec.search).paths
        greedy = not drawn and all(arm.system.train.beam_size == 1 for arm in writing)
        if field == "length_penalty" and greedy:
            return "beam_size is 1, so answers are decoded greedily and nothing is compared"
        return None
    try:
        moves = any(_moves(arm, path, value, probe) for arm in arms for value in values)
    except ValueError:
        return None  # what cannot be run is refused by the proof
    return None if moves else "evaluation gives the same with every value, in every arm"


def _untested(spec: Spec, arms: Sequence[BuiltInArm], path: str, values: Sequence[Value]) -> str | None:
    """Why no value of a field of the task changes what is tested."""
    if all(path.partition(".")[2] in training_only(arm.system.task) for arm in arms):
        return "it changes nothing but what is trained on"
    read = spec.confirm.splits if spec.confirm is not None else ()
    changed = any(_tests_otherwise(arm, path, values, read) for arm in arms)
    return None if changed else "no split of confirm.splits has it"


def _tests_otherwise(arm: BuiltInArm, path: str, values: Sequence[Value], read: Sequence[str]) -> bool:
    """Whether any value of a field of the task makes other samples of the splits `read`."""
    others = [checked(with_value(arm.system.settings, path, value)) for value in values]
    own = task_acting(settled(arm.system.task), read)
    return any(isinstance(each, System) and task_acting(settled(each.task), read) != own for each in others)


def _moves(arm: BuiltInArm, path: str, value: Value, probe: Probe) -> bool:
    """Whether evaluating `arm` with `value` gives anything else, at some weights."""
    after = checked(with_value(arm.system.settings, path, value))
    if not isinstance(after, System) or after == arm.system:
        return False
    return any(
        not reads_alike(probe, one, other, point, READ_LENGTH)
        for one, other in quick_first(probe, arm.system, after)
        for point in range(POINTS)
    )
