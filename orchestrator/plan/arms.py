"""The arms of a spec: what each one sets, and its full settings, which differ in nothing else."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Generic, Protocol, TypeVar

from orchestrator.plan.faults import Faults, Keys
from orchestrator.plan.training_code.settings import (
    SettingFault,
    System,
    checked,
    differences,
    fields_of,
    readable_parts,
    undeclared,
)
from orchestrator.plan.types import Change
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.scalars import assignments
from orchestrator.spec.types import ArmSpec, ControlSpec, Spec
from search_spaces.dimensions import key_of
from search_spaces.paths import MISSING, leaves, lookup, with_value
from search_spaces.wording import amount, nearest, shown
from trainables.custom.extensions import BadName


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """One arm in one cell of the grid."""

    label: str
    """Name without the cell: `baseline` or the arm's key in the spec."""
    why: str
    changes: Mapping[str, Any]
    """What the arm sets."""
    drop: tuple[str, ...]
    cell: Mapping[str, Any]
    """What contexts and grid set."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """The part of `cell` that contexts set."""
    control: bool = False
    """Whether it is the baseline under another name."""
    allow_no_effect: bool = False
    """Whether it may do what the baseline does, as far as the check can see."""

    @property
    def name(self) -> str:
        """E.g. `minus-gate[model.max_layers=20]`."""
        return _name(self.label, self.cell)

    @property
    def name_in_context(self) -> str:
        """The name without the values of contexts, which is the same in all of them."""
        return _name(
            self.label, {path: value for path, value in self.cell.items() if path not in self.context}
        )

    @property
    def is_baseline(self) -> bool:
        """Whether the arm is the baseline of its cell."""
        return self.label == BASELINE

    def keys(self, path: str) -> Keys:
        """Where the spec says what this arm has at `path`."""
        if path in self.changes:
            return ("arms", self.label, "set", path)
        if path in self.cell:
            return ("contexts" if path in self.context else "grid", path)
        if self.is_baseline:
            return in_baseline(path)
        return ("arms", self.label)


def _name(label: str, cell: Mapping[str, Any]) -> str:
    return f"{label}[{assignments(cell)}]" if cell else label


def in_baseline(path: str) -> Keys:
    """Where the spec has the setting at `path`, of a list by position: `task.length_ranges.0`."""
    return ("baseline", *(int(part) if part.isdecimal() else part for part in path.split(".") if part))


def requested_arms(spec: Spec) -> Iterator[ArmRequest]:
    """Every arm in every cell: the baseline in all cells first, then the arms in the order of the spec."""
    for cell, context in _cells(spec):
        yield ArmRequest(BASELINE, "what every arm is compared with", {}, (), cell, context)
    for name, arm in spec.arms.items():
        for cell, context in _cells(spec):
            yield ArmRequest(
                name,
                arm.why,
                arm.set,
                arm.drop,
                cell,
                context,
                control=isinstance(arm, ControlSpec),
                allow_no_effect=isinstance(arm, ArmSpec) and arm.allow_no_effect,
            )


def _cells(spec: Spec) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination of the values of contexts and grid, with its context; one empty cell without both."""
    combinations = [dict(zip(spec.axes, values, strict=True)) for values in product(*spec.axes.values())]
    return [(cell, {path: cell[path] for path in spec.contexts}) for cell in combinations]


class HasSettings(Protocol):
    """Settings that can be trained."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """As plain values, with every default filled in."""


S = TypeVar("S", bound=HasSettings)
Checked = Callable[[Mapping[str, Any]], S | list[SettingFault]]
"""What says of raw settings what they are, or all that is wrong with them."""
Readable = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What can be read of raw settings with which something is wrong, with every default filled in."""


@dataclass(frozen=True, slots=True)
class CheckedArm(Generic[S]):
    """An arm that can be built, with settings as its trainable reads them."""

    request: ArmRequest
    system: S
    changes: tuple[Change, ...]
    """Against `reference`."""
    reference: str
    """Name of the arm it is compared with: the baseline of its cell. That of another cell of the grid is
    compared with the first baseline of the same context, which has none."""

    @property
    def name(self) -> str:
        """Name of the arm."""
        return self.request.name


BuiltInArm = CheckedArm[System]
"""An arm of the built-in trainable."""
Progress = Callable[[str], None]


def resolve(spec: Spec, faults: Faults, progress: Progress = lambda _: None) -> list[BuiltInArm]:
    """`resolve_by` for the built-in trainable."""
    return resolve_by(checked, spec, faults, progress, readable_parts)


def resolve_by(
    checked: Checked[S],
    spec: Spec,
    faults: Faults,
    progress: Progress = lambda _: None,
    readable: Readable = lambda _: {},
) -> list[CheckedArm[S]]:
    """Every arm whose settings are right, the baseline first; what is wrong with others goes to `faults`.

    `progress` hears how many were looked at. Of a baseline with faults only what is `readable` is known.
    """
    raw = spec.settings
    plain = checked(raw)
    base_faults = set(plain) if isinstance(plain, list) else set()
    for problem in sorted(base_faults, key=lambda each: each.path):
        faults.add(problem.message, *in_baseline(problem.path))
    read = readable(raw) if isinstance(plain, list) else plain.settings
    base = {**raw, **read} if isinstance(plain, list) else read
    known_roots = set(read) if base_faults else None
    bases: dict[str, Mapping[str, Any]] = {}
    of_cells: dict[str, set[SettingFault]] = {}
    found: dict[str, CheckedArm[S]] = {}
    for number, request in enumerate(requested_arms(spec)):
        progress(f"the settings of {amount(number, 'arm')} read")
        home = base if request.is_baseline else bases.get(_cell_key(request), base)
        changed = _changed(home, request, known_roots, faults)
        if changed is None:
            continue
        if request.is_baseline:
            bases[_cell_key(request)] = changed
        result = checked(changed)
        if isinstance(result, list):
            known = base_faults | of_cells.setdefault(_cell_key(request), set())
            if request.is_baseline:
                of_cells[_cell_key(request)].update(result)
            _tell([each for each in result if each not in known], request, faults)
        elif not base_faults:
            if request.is_baseline:
                bases[_cell_key(request)] = result.settings
            first = next((each for each in found.values() if _same_context(each.request, request)), None)
            found[request.name] = _compared(request, result, home, first, faults)
    return list(found.values())


def _same_context(one: ArmRequest, other: ArmRequest) -> bool:
    return key_of(one.context) == key_of(other.context)


def _cell_key(request: ArmRequest) -> str:
    return repr(sorted(request.cell.items()))


def _compared(
    request: ArmRequest, system: S, home: Mapping[str, Any], first: CheckedArm[S] | None, faults: Faults
) -> CheckedArm[S]:
    changes = differences(home, system.settings)
    declared = request.cell if request.is_baseline else request.changes
    for change in undeclared(changes, declared):
        path = next(iter(declared), change.path)
        faults.add(
            f"must change only what it declares, but {change.path} goes from {shown(change.before)} to "
            f"{shown(change.after)} with it: set {change.path} too, or leave it as it is",
            *request.keys(path),
        )
    if request.is_baseline:
        if first is None:
            return CheckedArm(request, system, (), "")
        # Not against what is written, whose values no cell need have.
        return CheckedArm(request, system, differences(first.system.settings, system.settings), first.name)
    _refuse_what_is_there(request, home, system, faults)
    reference = _name(BASELINE, request.cell)
    return CheckedArm(request, system, changes, reference)


def _refuse_what_is_there(
    request: ArmRequest, home: Mapping[str, Any], system: HasSettings, faults: Faults
) -> None:
    """An arm must not set a field to what the baseline has, unless another model or task reads it anew."""
    renamed = {
        path.split(".")[0] for path in request.changes if path.count(".") == 1 and path.endswith(".name")
    }
    for path in request.changes:
        root = path.split(".")[0]
        if root in renamed and lookup(home, f"{root}.name") != lookup(system.settings, f"{root}.name"):
            continue
        before, after = lookup(home, path), lookup(system.settings, path)
        if before is not MISSING and key_of(before) == key_of(after):
            faults.add(
                f"must differ from the baseline, which has {shown(before)} already: this changes nothing",
                *request.keys(path),
            )


def _changed(
    home: Mapping[str, Any], request: ArmRequest, known_roots: Collection[str] | None, faults: Faults
) -> dict[str, Any] | None:
    """`home` with what the request sets; None if a path is nowhere.

    Where `home` is faulty, what is nowhere is known in the parts `known_roots` alone: others lack defaults.
    """
    settings = dict(home)
    sets = request.cell if request.is_baseline else request.changes
    right = True
    for path, value in _names_first(sets):
        if path in {"task.name", "model.name"}:
            settings = _renamed(settings, path.split(".")[0], value)
        try:
            settings = with_value(settings, path, value)
        except ValueError as error:
            right = False
            if known_roots is None or path.split(".")[0] in known_roots:
                near = nearest(path, [known for known, _ in leaves(home)])
                question = f". Did you mean {near!r}?" if near is not None else ""
                faults.add(f"{error}{question}", *request.keys(path))
    return settings if right else None


def _names_first(sets: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(sets.items(), key=lambda item: item[0] not in {"task.name", "model.name"})


def _renamed(settings: Mapping[str, Any], root: str, name: Any) -> dict[str, Any]:
    """The part `root` with only the fields that the model or task called `name` has too."""
    try:
        shared = fields_of(root, name)
    except BadName:
        return dict(settings)
    return {**settings, root: {key: value for key, value in settings[root].items() if key in shared}}


def _tell(problems: list[SettingFault], request: ArmRequest, faults: Faults) -> None:
    sets = request.cell if request.is_baseline else request.changes
    for problem in problems:
        under = [path for path in sets if f"{problem.path}.".startswith(f"{path}.")]
        beside = [path for path in sets if path.split(".")[0] == problem.path.split(".")[0]]
        path = next(iter(under or beside), problem.path)
        place = "" if path == problem.path or problem.path in problem.message else f"{problem.path}: "
        faults.add(f"{place}{problem.message}", *request.keys(path))
