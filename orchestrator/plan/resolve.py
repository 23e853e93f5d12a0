"""From drafts to full settings: the baseline of the same cell with only the declared fields changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from orchestrator.plan.changes import differences, undeclared
from orchestrator.plan.drafts import Draft, drafts, in_baseline
from orchestrator.plan.faults import Faults
from orchestrator.plan.settings import Problem, System, checked, fields_of, leaves
from orchestrator.plan.types import Change
from orchestrator.spec.types import Spec
from search_spaces.paths import MISSING, lookup, with_value
from search_spaces.wording import amount, nearest, shown
from trainables.extensions import BadName


class HasSettings(Protocol):
    """Settings that can be trained."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """As plain values, with every default filled in."""


S = TypeVar("S", bound=HasSettings)
Checked = Callable[[Mapping[str, Any]], S | list[Problem]]
"""What says of raw settings what they are, or all that is wrong with them."""


@dataclass(frozen=True, slots=True)
class ResolvedOf(Generic[S]):
    """An arm that can be built, with settings as its trainable reads them."""

    draft: Draft
    system: S
    changes: tuple[Change, ...]
    """Against `reference`."""
    reference: str
    """Name of the arm it is compared with: the baseline of its cell, or the first one; empty for that one."""


Resolved = ResolvedOf[System]
"""An arm of the built-in trainable."""
Progress = Callable[[str], None]


def resolve(spec: Spec, faults: Faults, progress: Progress = lambda _: None) -> list[Resolved]:
    """`resolve_by` for the built-in trainable."""
    return resolve_by(checked, spec, faults, progress)


def resolve_by(
    checked: Checked[S], spec: Spec, faults: Faults, progress: Progress = lambda _: None
) -> list[ResolvedOf[S]]:
    """Every arm whose settings are right, the baseline first; what is wrong with others goes to `faults`.

    `progress` hears how many were looked at.
    """
    raw = spec.settings
    plain = checked(raw)
    told = set(plain) if isinstance(plain, list) else set()
    for problem in sorted(told, key=lambda each: each.path):
        faults.add(problem.message, *in_baseline(problem.path))
    base: Mapping[str, Any] = raw if isinstance(plain, list) else plain.settings
    bases: dict[str, Mapping[str, Any]] = {}
    of_cells: dict[str, set[Problem]] = {}
    found: dict[str, ResolvedOf[S]] = {}
    for number, draft in enumerate(drafts(spec)):
        progress(f"the settings of {amount(number, 'arm')} read")
        home = base if draft.is_baseline else bases.get(_cell_key(draft), base)
        changed = _changed(home, draft, faults)
        if changed is None:
            continue
        if draft.is_baseline:
            bases[_cell_key(draft)] = changed
        result = checked(changed)
        if isinstance(result, list):
            known = told | of_cells.setdefault(_cell_key(draft), set())
            if draft.is_baseline:
                of_cells[_cell_key(draft)].update(result)
            _tell([each for each in result if each not in known], draft, faults)
        elif not told:
            if draft.is_baseline:
                bases[_cell_key(draft)] = result.settings
            found[draft.name] = _compared(draft, result, home, next(iter(found), ""), faults)
    return list(found.values())


def _cell_key(draft: Draft) -> str:
    return repr(sorted(draft.cell.items()))


def _compared(draft: Draft, system: S, home: Mapping[str, Any], first: str, faults: Faults) -> ResolvedOf[S]:
    changes = differences(home, system.settings)
    declared = draft.cell if draft.is_baseline else draft.changes
    for change in undeclared(changes, declared):
        path = next(iter(declared), change.path)
        faults.add(
            f"must change only what it declares, but {change.path} goes from {shown(change.before)} to "
            f"{shown(change.after)} with it: set {change.path} too, or leave it as it is",
            *draft.keys(path),
        )
    if draft.is_baseline:
        return ResolvedOf(draft, system, changes if first else (), first)
    _refuse_what_is_there(draft, home, system, faults)
    reference = Draft("baseline", "", {}, (), draft.cell).name
    return ResolvedOf(draft, system, changes, reference)


def _refuse_what_is_there(draft: Draft, home: Mapping[str, Any], system: HasSettings, faults: Faults) -> None:
    """An arm must not set a field to what the baseline has, unless another model or task reads it anew."""
    renamed = {
        path.split(".")[0] for path in draft.changes if path.count(".") == 1 and path.endswith(".name")
    }
    for path in draft.changes:
        root = path.split(".")[0]
        if root in renamed and lookup(home, f"{root}.name") != lookup(system.settings, f"{root}.name"):
            continue
        before, after = lookup(home, path), lookup(system.settings, path)
        if before is not MISSING and type(before) is type(after) and before == after:
            faults.add(
                f"must differ from the baseline, which has {shown(before)} already: this changes nothing",
                *draft.keys(path),
            )


def _changed(home: Mapping[str, Any], draft: Draft, faults: Faults) -> dict[str, Any] | None:
    """`home` with what the draft sets; None if a path is nowhere."""
    settings = dict(home)
    sets = draft.cell if draft.is_baseline else draft.changes
    right = True
    for path, value in _names_first(sets):
        if path in {"task.name", "model.name"}:
            settings = _renamed(settings, path.split(".")[0], value)
        try:
            settings = with_value(settings, path, value)
        except ValueError as error:
            near = nearest(path, [known for known, _ in leaves(home)])
            question = f". Did you mean {near!r}?" if near is not None else ""
            faults.add(f"{error}{question}", *draft.keys(path))
            right = False
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


def _tell(problems: list[Problem], draft: Draft, faults: Faults) -> None:
    sets = draft.cell if draft.is_baseline else draft.changes
    for problem in problems:
        under = [path for path in sets if f"{problem.path}.".startswith(f"{path}.")]
        beside = [path for path in sets if path.split(".")[0] == problem.path.split(".")[0]]
        path = next(iter(under or beside), problem.path)
        place = "" if path == problem.path or problem.path in problem.message else f"{problem.path}: "
        faults.add(f"{place}{problem.message}", *draft.keys(path))
