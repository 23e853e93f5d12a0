"""List everything that each arm changes relative to its reference, independent of its name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.display.format import change_words, value_words
from orchestrator.plan.types import Arm, Change, Plan
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import amount

LISTED, LONGEST = 6, 40
"""Maximum number of fields in a row and of letters of a value; page and report.json have all."""
SEARCHED = "searched"
"""Denotes a value that every repeat of a search chooses anew."""
TITLE = "what each arm changes against the arm it is compared with"


@dataclass(frozen=True, slots=True)
class ArmChanges:
    """Differences between the settings of an arm and those of its reference."""

    arm: str
    reference: str
    """Empty for the baseline."""
    changes: tuple[Change, ...]
    """All fields that differ. If only the reference searches a field, its chosen value is the old one."""
    chosen: Mapping[str, Any]
    """Values that the arm's search chose; empty before a choice, and if searches are repeated."""
    searched: tuple[str, ...]
    """Fields that the arm's search varies."""
    dropped: Mapping[str, Any]
    """Fields of the common search that the arm does not search, with values; None for a missing field."""
    chosen_by_repeat: tuple[Mapping[str, Any], ...] = ()
    """Values that each repeat of the arm's search chose, if searches are repeated."""


def arm_changes(
    plan: Plan,
    assignments: Mapping[str, Mapping[str, Any]],
    by_repeat: Mapping[str, tuple[Mapping[str, Any], ...]],
) -> Iterator[ArmChanges]:
    """Yield the changes of each arm, the baseline first; nothing if no arm changes or searches anything.

    Args:
        plan: Plan of the sweep.
        assignments: Values that the search of an arm chose, by arm.
        by_repeat: Values that each repeat of the search of an arm chose, by arm, if searches are repeated.
    """
    if not any(arm.changes or arm.space.paths for arm in plan.arms):
        return
    for arm in plan.arms:
        values = {path: lookup(arm.settings, path) for path in arm.dropped}
        yield ArmChanges(
            arm=arm.name,
            reference=arm.reference,
            changes=tuple(_as_run(arm, _of_reference(plan, arm, assignments))),
            chosen=dict(assignments.get(arm.name, {})),
            searched=arm.space.paths,
            dropped={path: None if value is MISSING else value for path, value in values.items()},
            chosen_by_repeat=by_repeat.get(arm.name, ()),
        )


def _of_reference(plan: Plan, arm: Arm, assignments: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the values that the search of the reference chose, or `SEARCHED` if searches are repeated."""
    if plan.repeats == 1 or not arm.reference:
        return assignments.get(arm.reference, {})
    return dict.fromkeys(plan.arm(arm.reference).space.paths, SEARCHED)


def _as_run(arm: Arm, of_reference: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes with the values that ran; fields that the arm's search replaces are left out."""
    for change in arm.changes:
        if change.path in arm.space.paths:
            continue  # displayed as chosen
        before = of_reference.get(change.path, change.before)
        if type(before) is not type(change.after) or before != change.after:
            yield Change(change.path, before, change.after)


def rows(found: tuple[ArmChanges, ...]) -> list[tuple[str, ...]]:
    """Return one row per arm: name, reference, changes, chosen values, fields not searched."""
    return [
        (
            each.arm,
            each.reference or "-",
            _listed([f"{one.path} {' -> '.join(map(_cut, _words(one)))}" for one in each.changes]),
            _chosen(each),
            _listed(
                [
                    path if value is None else f"{path} = {_short(value)}"
                    for path, value in each.dropped.items()
                ]
            ),
        )
        for each in found
    ]


def is_cut(each: ArmChanges) -> bool:
    """Return whether the row of the arm omits fields or parts of values."""
    values = [
        *(value for one in each.changes for value in (one.before, one.after)),
        *each.chosen.values(),
        *each.dropped.values(),
    ]
    many = max(len(each.changes), len(each.chosen), len(each.dropped)) > LISTED
    return many or any(len(value_words(value)) > LONGEST for value in values)


def in_full(each: ArmChanges) -> tuple[str, ...]:
    """Return one line per field, without a limit on their number or length."""
    return (
        *(f"{one.path}: {' -> '.join(_words(one))}" for one in each.changes),
        *(f"{path}: chosen by its search: {value_words(value)}" for path, value in each.chosen.items()),
        *(
            f"{path}: not searched" + ("" if value is None else f": {value_words(value)}")
            for path, value in each.dropped.items()
        ),
    )


def _chosen(each: ArmChanges) -> str:
    if each.searched and each.chosen_by_repeat:
        return _listed([f"{path} = {chosen_words(each, path)}" for path in each.searched])
    if each.searched and not each.chosen:
        return "nothing chosen"
    return _listed([f"{path} = {_short(value)}" for path, value in each.chosen.items()])


def chosen_values(each: ArmChanges, path: str) -> list[Any]:
    """Return the values that an arm's search chose for a field: one, or one of each repeat."""
    return [chosen[path] for chosen in each.chosen_by_repeat or (each.chosen,) if path in chosen]


def chosen_words(each: ArmChanges, path: str) -> str:
    """Return the chosen values of a field as text: the range of numbers, else all different values."""
    values = chosen_values(each, path)
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if values and len(numbers) == len(values) and min(numbers) != max(numbers):
        return f"{_short(min(numbers))} to {_short(max(numbers))}"
    return " or ".join(dict.fromkeys(map(_short, values))) or "nothing chosen"


def _listed(texts: list[str]) -> str:
    more = len(texts) - LISTED
    kept = [*texts[:LISTED], *([f"and {amount(more, 'more field')}"] if more > 0 else [])]
    return "; ".join(kept) or "-"


def _words(change: Change) -> tuple[str, str]:
    return change_words(change.before, change.after)


def _short(value: object) -> str:
    return _cut(value_words(value))


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
