"""Create the arms of a spec with full settings, and check that each changes only what it declares."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Generic, Protocol, TypeVar

from orchestrator.errors import FaultCode
from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.training_code.settings import (
    ParsedSettings,
    SettingFault,
    differences,
    field_names,
    parse_settings,
    undeclared_changes,
    valid_parts,
)
from orchestrator.plan.types import Change
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.scalars import assignments
from orchestrator.spec.types import ArmSpec, ControlSpec, Spec
from search_spaces.dimensions import equality_key
from search_spaces.paths import MISSING, leaves, lookup, with_value
from search_spaces.wording import format_value, nearest
from trainables.custom.extensions import BadName


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """An arm in one cell of the grid, as the spec defines it."""

    label: str
    """Name without the cell: `baseline` or the arm's key in the spec."""
    why: str
    changes: Mapping[str, Any]
    """Fields that the arm sets, by path."""
    drop: tuple[str, ...]
    cell: Mapping[str, Any]
    """Fields that contexts and grid set, by path."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Part of `cell` that contexts set."""
    control: bool = False
    """Whether the arm is the baseline under another name."""
    allow_no_effect: bool = False
    """Whether the arm may be equivalent to the baseline in the ablation check."""

    @property
    def name(self) -> str:
        """Name with the cell, e.g. `minus-gate[model.max_layers=20]`."""
        return _arm_name(self.label, self.cell)

    @property
    def name_in_context(self) -> str:
        """Return the name of the arm without the values of its context; it is equal in all contexts."""
        cell = {path: value for path, value in self.cell.items() if path not in self.context}
        return _arm_name(self.label, cell)

    @property
    def is_baseline(self) -> bool:
        """Return whether the arm is the baseline of its cell."""
        return self.label == BASELINE

    @property
    def declared(self) -> Mapping[str, Any]:
        """Return the fields that the arm sets, by path; a baseline sets those of its cell."""
        return self.cell if self.is_baseline else self.changes

    def keys(self, path: str) -> Keys:
        """Return the place in the spec that defines this arm's value at `path`."""
        if path in self.changes:
            return ("arms", self.label, "set", path)
        if path in self.cell:
            return ("contexts" if path in self.context else "grid", path)
        if self.is_baseline:
            return baseline_keys(path)
        return ("arms", self.label)


def _arm_name(label: str, cell: Mapping[str, Any]) -> str:
    return f"{label}[{assignments(cell)}]" if cell else label


def baseline_keys(path: str) -> Keys:
    """Return the place in the spec of the baseline's setting at `path`; list items by position."""
    return ("baseline", *(int(part) if part.isdecimal() else part for part in path.split(".") if part))


def requested_arms(spec: Spec) -> Iterator[ArmRequest]:
    """Yield every arm in every cell.

    The baseline comes first in all cells, then the arms in the order of the spec.
    """
    for cell, context in _cells(spec):
        yield ArmRequest(BASELINE, "what every arm is compared with", {}, (), cell, context)
    for name, arm in spec.arms.items():
        for cell, context in _cells(spec):
            is_control = isinstance(arm, ControlSpec)
            allowed = isinstance(arm, ArmSpec) and arm.allow_no_effect
            yield ArmRequest(name, arm.why, arm.set, arm.drop, cell, context, is_control, allowed)


def _cells(spec: Spec) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return every combination of the values of contexts and grid, with its context.

    Without contexts and grid there is one empty cell.
    """
    combinations = [dict(zip(spec.axes, values, strict=True)) for values in product(*spec.axes.values())]
    return [(cell, {path: cell[path] for path in spec.contexts}) for cell in combinations]


class HasSettings(Protocol):
    """Settings that a trainable accepts."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings as plain values, including all defaults."""


S = TypeVar("S", bound=HasSettings)
Checked = Callable[[Mapping[str, Any]], S | list[SettingFault]]
"""Function that validates raw settings; it returns validated settings or all faults."""
PartialReader = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Function that returns the readable part of invalid raw settings, including all defaults."""


@dataclass(frozen=True, slots=True)
class CheckedArm(Generic[S]):
    """A valid arm, with settings as parsed by its trainable."""

    request: ArmRequest
    system: S
    changes: tuple[Change, ...]
    """Differences from `reference`."""
    reference: str
    """Name of the arm that this arm is compared with: the baseline of its cell. The baseline of another grid
    cell is compared with the first baseline of the same context, which has no reference."""

    @property
    def name(self) -> str:
        """Return the name of the arm."""
        return self.request.name


BuiltInArm = CheckedArm[ParsedSettings]
"""An arm of the built-in trainable."""
Progress = Callable[[str], None]


def resolve_built_in_arms(
    spec: Spec, faults: Faults, progress: Progress = lambda _: None
) -> list[BuiltInArm]:
    """Return the valid arms of the built-in trainable; see `resolve_arms`."""
    return resolve_arms(parse_settings, spec, faults, progress, valid_parts)


def resolve_arms(
    parse: Checked[S],
    spec: Spec,
    faults: Faults,
    progress: Progress = lambda _: None,
    readable: PartialReader = lambda _: {},
) -> list[CheckedArm[S]]:
    """Return every arm with valid settings, as validated by `parse`; the baseline comes first.

    Args:
        parse: Validates raw settings.
        spec: The spec.
        faults: Collects the problems of all other arms.
        progress: Called with the number of arms that have been read.
        readable: Returns the valid part of the settings, used if the baseline has faults.
    """
    plain = parse(spec.settings)
    base: Mapping[str, Any]
    if isinstance(plain, list):
        valid_part, base_faults = readable(spec.settings), set(plain)
        base, known_roots = {**spec.settings, **valid_part}, set(valid_part)
        for problem in sorted(base_faults, key=lambda fault: fault.path):
            faults.add(problem.message, *baseline_keys(problem.path), code=problem.code)
    else:
        base, base_faults, known_roots = plain.settings, set(), None
    bases: dict[str, Mapping[str, Any]] = {}
    of_cells: dict[str, set[SettingFault]] = {}
    arms_by_name: dict[str, CheckedArm[S]] = {}
    for number, request in enumerate(requested_arms(spec)):
        progress(f"reading the settings of arm {number + 1:,}")
        cell = _cell_key(request)
        home = base if request.is_baseline else bases.get(cell, base)
        changed_settings = _apply_changes(home, request, known_roots, faults)
        if changed_settings is None:
            continue
        if request.is_baseline:
            bases[cell] = changed_settings
        result = parse(changed_settings)
        if isinstance(result, list):
            reported = base_faults | of_cells.get(cell, set())
            if request.is_baseline:
                of_cells.setdefault(cell, set()).update(result)
            _add_problems([fault for fault in result if fault not in reported], request, faults)
        elif not base_faults:
            if request.is_baseline:
                bases[cell] = result.settings
            first = next((arm for arm in arms_by_name.values() if _same_context(arm.request, request)), None)
            arms_by_name[request.name] = _checked_arm(request, result, home, first, faults)
    return list(arms_by_name.values())


def _same_context(first: ArmRequest, second: ArmRequest) -> bool:
    return equality_key(first.context) == equality_key(second.context)


def _cell_key(request: ArmRequest) -> str:
    return repr(sorted(request.cell.items()))


def _checked_arm(
    request: ArmRequest,
    system: S,
    base_settings: Mapping[str, Any],
    first: CheckedArm[S] | None,
    faults: Faults,
) -> CheckedArm[S]:
    changes = differences(base_settings, system.settings)
    declared_values = request.declared
    for change in undeclared_changes(changes, declared_values):
        path = next(iter(declared_values), change.path)
        message = (
            f"must change only what it declares, but it changes {change.path} from "
            f"{format_value(change.before)} to {format_value(change.after)}: set {change.path} "
            "too, or keep its value"
        )
        faults.add(message, *request.keys(path), code=FaultCode.CONFLICTING_FIELDS)
    if request.is_baseline:
        if first is None:
            return CheckedArm(request, system, (), "")
        # Compare with the first cell: no cell may have the values in the spec's baseline.
        return CheckedArm(request, system, differences(first.system.settings, system.settings), first.name)
    _refuse_baseline_values(request, base_settings, system, faults)
    reference = _arm_name(BASELINE, request.cell)
    return CheckedArm(request, system, changes, reference)


def _refuse_baseline_values(
    request: ArmRequest, base_settings: Mapping[str, Any], system: HasSettings, faults: Faults
) -> None:
    """Add faults for fields that an arm sets to the baseline's value, unless it changes the model or task."""
    names = [path for path in request.changes if path.count(".") == 1 and path.endswith(".name")]
    renamed = {path.split(".")[0] for path in names}
    for path in request.changes:
        root = path.split(".")[0]
        if root in renamed and lookup(base_settings, f"{root}.name") != lookup(
            system.settings, f"{root}.name"
        ):
            continue
        old_value, new_value = lookup(base_settings, path), lookup(system.settings, path)
        if old_value is not MISSING and equality_key(old_value) == equality_key(new_value):
            message = (
                f"has no effect: the baseline already has {format_value(old_value)}. Delete it or change "
                "the value"
            )
            faults.add(message, *request.keys(path), code=FaultCode.ARM_HAS_NO_EFFECT)


def _apply_changes(
    base_settings: Mapping[str, Any], request: ArmRequest, known_roots: Collection[str] | None, faults: Faults
) -> dict[str, Any] | None:
    """Return `base_settings` with the fields of the request; None if a path does not exist.

    If `known_roots` is given, `base_settings` has faults and lacks defaults outside of these parts. Paths
    outside of them are not reported.
    """
    settings = dict(base_settings)
    declared_values = request.declared
    is_valid = True
    for path, value in _component_names_first(declared_values):
        if path in {"task.name", "model.name"}:
            settings = _settings_of_component(settings, path.split(".")[0], value)
        try:
            settings = with_value(settings, path, value)
        except ValueError as error:
            is_valid = False
            if known_roots is None or path.split(".")[0] in known_roots:
                suggestion = nearest(path, [field_path for field_path, _ in leaves(base_settings)])
                question = f". Did you mean {suggestion!r}?" if suggestion is not None else ""
                faults.add(f"{error}{question}", *request.keys(path), code=FaultCode.UNKNOWN_FIELD)
    return settings if is_valid else None


def _component_names_first(sets: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(sets.items(), key=lambda item: item[0] not in {"task.name", "model.name"})


def _settings_of_component(settings: Mapping[str, Any], root: str, name: Any) -> dict[str, Any]:
    """Return the settings with only those fields of `root` that the model or task called `name` has, too."""
    try:
        shared_names = field_names(root, name)
    except BadName:
        return dict(settings)
    return {**settings, root: {key: value for key, value in settings[root].items() if key in shared_names}}


def _add_problems(problems: list[SettingFault], request: ArmRequest, faults: Faults) -> None:
    declared_values = request.declared
    for problem in problems:
        fields_below = [path for path in declared_values if f"{problem.path}.".startswith(f"{path}.")]
        neighbours = [path for path in declared_values if path.split(".")[0] == problem.path.split(".")[0]]
        path = next(iter(fields_below or neighbours), problem.path)
        prefix = "" if path == problem.path or problem.path in problem.message else f"{problem.path}: "
        faults.add(f"{prefix}{problem.message}", *request.keys(path), code=problem.code)
