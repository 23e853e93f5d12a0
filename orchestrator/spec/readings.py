"""Which reading a published value belongs to: one cell of the grid, as trained or as read again."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.spec.document import Document, Keys
from search_spaces.dimensions import same
from search_spaces.wording import hint, shown


def misplaced(
    row: Mapping[str, Any], grid: Mapping[str, Any], posthoc: Mapping[str, Any]
) -> Iterator[tuple[Keys, str]]:
    """What is wrong with the reading that a published row names, each with its keys inside the row."""
    cell, reading = row.get("cell", {}), row.get("posthoc", {})
    for path in grid if isinstance(cell, dict) and row.get("arm") is not None else ():
        if path not in cell:
            wanted = f"must name its cell of the grid, cell: {{{path}: ...}}"
            yield (), f"{wanted}: a value stands beside the one reading it belongs to"
    for part, section, known, given in (
        ("cell", "grid", grid, cell),
        ("posthoc", "posthoc", posthoc, reading),
    ):
        for path, value in given.items() if isinstance(given, dict) else ():
            values = known.get(path)
            if path not in known:
                yield (part, path), f"is not in {section}. {hint(str(path), map(str, known))}"
            elif isinstance(values, list) and not any(same(value, each) for each in values):
                choices = ", ".join(map(shown, values))
                yield (part, path), f"must be a value of {section} ({choices}), got {shown(value)}"


def leave_out(found: Document, written: Document) -> None:
    """Take out published rows whose reading a profile or overrides have taken away.

    They stand beside nothing in this sweep, which is no fault.
    """
    rows = found.data.get("published") if isinstance(found.data, dict) else None
    if not isinstance(rows, list):
        return
    for place in reversed(range(len(rows))):
        if isinstance(rows[place], dict) and _gone(rows[place], found.data, written.data):
            del rows[place]
            _close_gap(found, place)


def _gone(row: Mapping[str, Any], now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    had, has = (
        not any(misplaced(row, _mapping(data, "grid"), _mapping(data, "posthoc"))) for data in (before, now)
    )
    return had and not has


def _mapping(data: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    found = data.get(section)
    return found if isinstance(found, dict) else {}


def _close_gap(found: Document, place: int) -> None:
    """Origins of the rows after `place` move up by one."""
    for keys in [keys for keys in found.origins if keys[:1] == ("published",) and len(keys) > 1]:
        at = keys[1]
        if isinstance(at, int) and at >= place:
            origin = found.origins.pop(keys)
            if at > place:
                found.origins["published", at - 1, *keys[2:]] = origin
