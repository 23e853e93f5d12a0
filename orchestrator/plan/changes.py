"""In which fields two settings differ."""

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.plan.types import Change
from search_spaces.paths import MISSING, overlap


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> tuple[Change, ...]:
    """Every field that differs, outermost where one side has no mapping. What is absent counts as null."""
    found: list[Change] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, MISSING), after.get(key, MISSING)
        path = f"{prefix}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{path}.")
        elif type(old) is not type(new) or old != new:
            found.append(Change(path, _null(old), _null(new)))
    return tuple(found)


def undeclared(changes: Iterable[Change], declared: Iterable[str]) -> tuple[Change, ...]:
    """The changes that touch none of the `declared` paths. A change of name declares its whole part."""
    paths = [path.removesuffix(".name") if path.count(".") == 1 else path for path in declared]
    return tuple(change for change in changes if not any(overlap(change.path, path) for path in paths))


def _null(value: Any) -> Any:
    return None if value is MISSING else value
