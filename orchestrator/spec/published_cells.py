"""Match published values with the cell of contexts and grid, and the evaluation, that they belong to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from orchestrator.spec.document import Document, Keys
from search_spaces.dimensions import are_equal
from search_spaces.paths import leaves
from search_spaces.wording import format_value, hint

UNCOMPARED_FIELDS = ("task.folder", "task.validate_on")
"""Fields that may differ from the published system: the location of the data, and the validation split."""


def cell_problems(
    row: Mapping[str, Any], axes: Mapping[str, Any], posthoc: Mapping[str, Any]
) -> Iterator[tuple[Keys, str]]:
    """Yield the errors in the cell of a published row, each with its keys inside the row.

    Args:
        row: Published row as written.
        axes: Fields of contexts and grid with their values.
        posthoc: Fields of posthoc with their values.
    """
    cell, reading = row.get("cell", {}), row.get("posthoc", {})
    for path in axes if isinstance(cell, dict) and row.get("arm") is not None else ():
        if path not in cell:
            requirement = f"must name its cell of contexts and grid, cell: {{{path}: ...}}"
            yield (), f"{requirement}: a value belongs to one evaluation"
    if isinstance(reading, dict) and len(reading) > 1:
        requirement = f"must name one setting, got {len(reading)} ({', '.join(map(str, reading))})"
        reason = "checkpoints are evaluated again with one changed setting at a time"
        yield ("posthoc",), f"{requirement}: {reason}"
    for part, section, known_values, row_values in (
        ("cell", "contexts or grid", axes, cell),
        ("posthoc", "posthoc", posthoc, reading),
    ):
        for path, value in row_values.items() if isinstance(row_values, dict) else ():
            values = known_values.get(path)
            if path not in known_values:
                yield (part, path), f"is not in {section}. {hint(str(path), map(str, known_values))}"
            elif isinstance(values, list | tuple) and not any(are_equal(value, item) for item in values):
                choices = ", ".join(map(format_value, values))
                yield (part, path), f"must be a value of {section} ({choices}), got {format_value(value)}"


def remove_stale_rows(document: Document, original: Document) -> None:
    """Remove published rows whose evaluation no longer exists after a profile or overrides.

    A row is removed if its cell of the grid, its posthoc evaluation, or its arm's training settings have
    changed. This is not a fault; `found.left_out` counts the rows. Rows that are themselves new or changed
    remain.
    """
    if document.data == original.data:
        return
    rows = document.data.get("published") if isinstance(document.data, dict) else None
    rows_before = original.data.get("published")
    if not isinstance(rows, list) or not isinstance(rows_before, list):
        return
    known_rows = set(map(repr, rows_before))

    @cache
    def same_training(arm: str) -> bool:
        return _training_settings(arm, document.data) == _training_settings(arm, original.data)

    def gone(row: Any) -> bool:
        stood = isinstance(row, dict) and repr(row) in known_rows
        return stood and _is_stale(row, document.data, original.data, same_training)

    kept_places = [place for place, row in enumerate(rows) if not gone(row)]
    document.left_out += len(rows) - len(kept_places)
    _keep(document, kept_places)


def _is_stale(
    row: Mapping[str, Any],
    new_document: Mapping[str, Any],
    old_document: Mapping[str, Any],
    same_training: Callable[[str], bool],
) -> bool:
    had_row, has = (
        not any(cell_problems(row, _axes(data), _mapping(data, "posthoc")))
        for data in (old_document, new_document)
    )
    if not isinstance(arm := row.get("arm"), str):  # a row without an arm, or with an invalid one
        return had_row and not has
    return had_row and not (has and same_training(arm))


def _training_settings(arm: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training settings of an arm in `data`, without settings that affect no result."""
    arms, components = _mapping(data, "arms"), _mapping(data, "components")
    # An arm that is not written is created from components.
    settings_of_arm = [arms[arm]] if arm in arms else [] if arm == "baseline" else [*components.values()]
    values_by_path = {
        path: value
        for settings in settings_of_arm
        for path, value in leaves(_mapping(_as_mapping(settings), "set"))
    }
    baseline = dict(leaves(_mapping(data, "baseline")))
    settings = {"trainable": data.get("trainable"), **baseline, **values_by_path}
    return {path: value for path, value in settings.items() if path not in _fields_without_effect()}


@cache
def _fields_without_effect() -> frozenset[str]:
    from trainables.field_effects import running  # loads the settings of training, which few specs need here
    from trainables.training.config import TrainConfig

    return frozenset({*UNCOMPARED_FIELDS, *(f"train.{name}" for name in running(TrainConfig))})


def _axes(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_mapping(data, "contexts"), **_mapping(data, "grid")}


def _mapping(data: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    return _as_mapping(data.get(section))


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _keep(document: Document, positions: Sequence[int]) -> None:
    """Remove all published rows except those at `positions`, and adjust the origins of the rest."""
    rows = document.data["published"]
    if len(positions) == len(rows):
        return
    rows[:] = [rows[place] for place in positions]
    new_positions: Mapping[Any, int] = {old_place: now for now, old_place in enumerate(positions)}
    of_rows = [keys for keys in document.origins if keys[:1] == ("published",) and len(keys) > 1]
    origins = {keys: document.origins.pop(keys) for keys in of_rows}
    document.origins |= {
        ("published", new_positions[keys[1]], *keys[2:]): origin
        for keys, origin in origins.items()
        if keys[1] in new_positions
    }
