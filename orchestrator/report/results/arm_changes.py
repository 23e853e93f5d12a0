"""List everything that each arm changes relative to its reference, independent of its name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.plan.display.format import change_words, value_words
from orchestrator.plan.types import Arm, Change, Plan
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import amount

MAX_LISTED_FIELDS, MAX_LENGTH = 6, 40
"""Maximum number of fields in a row and of letters of a value; page and report.json have all."""
SEARCHED_VALUE = "searched"
"""Denotes a value that every repeat of a search chooses anew."""
CHANGES_TITLE = "changes of each arm to its reference"


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
    """Yield the changes of each arm, the baseline first; nothing if no arm changes or searches any field.

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
            changes=tuple(_effective_changes(arm, _reference_values(plan, arm, assignments))),
            chosen=dict(assignments.get(arm.name, {})),
            searched=arm.space.paths,
            dropped={path: None if value is MISSING else value for path, value in values.items()},
            chosen_by_repeat=by_repeat.get(arm.name, ()),
        )


def _reference_values(plan: Plan, arm: Arm, chosen: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the values that the search of the reference chose, `SEARCHED_VALUE` for repeated searches."""
    if plan.repeats == 1 or not arm.reference:
        return chosen.get(arm.reference, {})
    return dict.fromkeys(plan.arm(arm.reference).space.paths, SEARCHED_VALUE)


def _effective_changes(arm: Arm, reference_values: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes with the values that ran, except fields that the arm's own search sets."""
    for change in arm.changes:
        if change.path in arm.space.paths:
            continue  # displayed as chosen
        old_value = reference_values.get(change.path, change.before)
        if type(old_value) is not type(change.after) or old_value != change.after:
            yield Change(change.path, old_value, change.after)


def change_rows(arms: tuple[ArmChanges, ...]) -> list[tuple[str, ...]]:
    """Return one row per arm: name, reference, changes, chosen values, fields not searched."""
    return [(arm.arm, arm.reference or "-", *_change_cells(arm)) for arm in arms]


def _change_cells(arm: ArmChanges) -> tuple[str, str, str]:
    changes = [
        f"{change.path} {' -> '.join(map(_truncate, _change_texts(change)))}" for change in arm.changes
    ]
    dropped = [
        path if value is None else f"{path} = {_short_value(value)}" for path, value in arm.dropped.items()
    ]
    return _join_fields(changes), _chosen_text(arm), _join_fields(dropped)


def has_omissions(arm: ArmChanges) -> bool:
    """Return whether the row of the arm omits fields or parts of values."""
    changed_values = [value for change in arm.changes for value in (change.before, change.after)]
    values = [*changed_values, *arm.chosen.values(), *arm.dropped.values()]
    has_many = max(len(arm.changes), len(arm.chosen), len(arm.dropped)) > MAX_LISTED_FIELDS
    return has_many or any(len(value_words(value)) > MAX_LENGTH for value in values)


def full_change_lines(arm: ArmChanges) -> tuple[str, ...]:
    """Return one line per field, without a limit on their number or length."""
    dropped = {
        path: "" if value is None else f": {value_words(value)}" for path, value in arm.dropped.items()
    }
    return (
        *(f"{change.path}: {' -> '.join(_change_texts(change))}" for change in arm.changes),
        *(f"{path}: chosen by its search: {value_words(value)}" for path, value in arm.chosen.items()),
        *(f"{path}: not searched{text}" for path, text in dropped.items()),
    )


def _chosen_text(arm: ArmChanges) -> str:
    if arm.searched and arm.chosen_by_repeat:
        return _join_fields([f"{path} = {format_chosen(arm, path)}" for path in arm.searched])
    if arm.searched and not arm.chosen:
        return "nothing chosen"
    return _join_fields([f"{path} = {_short_value(value)}" for path, value in arm.chosen.items()])


def chosen_values(arm: ArmChanges, path: str) -> list[Any]:
    """Return the values that an arm's search chose for a field: one, or one of each repeat."""
    return [params[path] for params in arm.chosen_by_repeat or (arm.chosen,) if path in params]


def format_chosen(arm: ArmChanges, path: str) -> str:
    """Return the chosen values of a field as text: the range of numbers, else all different values."""
    values = chosen_values(arm, path)
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if values and len(numbers) == len(values) and min(numbers) != max(numbers):
        return f"{_short_value(min(numbers))} to {_short_value(max(numbers))}"
    return " or ".join(dict.fromkeys(map(_short_value, values))) or "nothing chosen"


def _join_fields(texts: list[str]) -> str:
    num_omitted = len(texts) - MAX_LISTED_FIELDS
    listed = [
        *texts[:MAX_LISTED_FIELDS],
        *([f"and {amount(num_omitted, 'more field')}"] if num_omitted > 0 else []),
    ]
    return "; ".join(listed) or "-"


def _change_texts(change: Change) -> tuple[str, str]:
    return change_words(change.before, change.after)


def _short_value(value: object) -> str:
    return _truncate(value_words(value))


def _truncate(words: str) -> str:
    return words if len(words) <= MAX_LENGTH else f"{words[: MAX_LENGTH - 1]}…"
