"""Dotted paths into settings: `model.halt.threshold` is the field `threshold` of `halt` of `model`.

A part may be a list position (`layers.0.size`). A key may contain dots. If a path is ambiguous, the longest
key wins: the key `optimizer.lr` has precedence over the field `lr` of `optimizer`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from search_spaces.wording import format_value, nearest

ROOTS: Final = ("task", "model", "train")
"""First part of every path of the built-in trainable: the three mappings of its settings."""

_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Missing:
    """The type of `MISSING`, which is distinct from null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def path_problem(path: str) -> str | None:
    """Return why `path` cannot be a field of a custom trainable; None if it can be one."""
    if all(part.isprintable() and part.strip() for part in path.split(".")) and path == path.strip():
        return None
    return f"a path must be names joined by single dots, got {path!r}"


def built_in_problem(path: str) -> str | None:
    """Return why `path` cannot be a field of the built-in trainable; None if it can be one."""
    root, *fields = path.split(".")
    if root not in ROOTS:
        similar_root = nearest(root, ROOTS)
        suggestion = (
            f". Did you mean {'.'.join([similar_root, *fields])!r}?" if similar_root is not None else ""
        )
        return f"a path must begin with task, model or train, got {path!r}{suggestion}"
    if not fields:
        return f"a path must name a field, e.g. '{root}.name', got {path!r}"
    if not all(_PART.fullmatch(part) for part in fields):
        field, _, value = path.partition(":")
        remedy = f"; write '{field}: {value}', with a space, if it is field and value" if value else ""
        return f"a path must be names joined by single dots, got {path!r}{remedy}"
    return None


def find_keys(settings: Any, path: str) -> tuple[str | int, ...] | None:
    """Return the keys and list positions of the field at `path`; None if there is no such field."""
    parts = path.split(".")
    if isinstance(settings, list | tuple):
        return _find_item(settings, parts)
    if not isinstance(settings, Mapping):
        return None
    if path in settings:
        return (path,)
    for end in range(len(parts) - 1, 0, -1):
        key = ".".join(parts[:end])
        if key in settings and (rest := find_keys(settings[key], ".".join(parts[end:]))) is not None:
            return (key, *rest)
    return None


def _find_item(items: Sequence[Any], parts: Sequence[str]) -> tuple[str | int, ...] | None:
    head, *rest = parts
    if not head.isdecimal() or not head.isascii() or int(head) >= len(items):
        return None
    keys = find_keys(items[int(head)], ".".join(rest)) if rest else ()
    return None if keys is None else (int(head), *keys)


def lookup(settings: Mapping[str, Any], path: str) -> Any:
    """Return the value at `path`; `MISSING` if a part of the path does not exist."""
    keys = find_keys(settings, path)
    if keys is None:
        return MISSING
    return _value_at(settings, keys)


def leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every field that is not a mapping; lists and empty mappings are values."""
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def with_value(settings: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of `settings` with `value` at `path`.

    Raises:
        ValueError: A part of the path other than the last does not exist.
    """
    keys = find_keys(settings, path)
    if keys is None:
        outer, dot, key = path.rpartition(".")
        parent = find_keys(settings, outer) if dot else ()
        if parent is None or not isinstance(_value_at(settings, parent), Mapping):
            raise ValueError(f"{path} does not exist: {_describe_obstacle(settings, path)}")
        keys = (*parent, key)
    changed: dict[str, Any] = _replace(settings, keys, value)
    return changed


def _value_at(value: Any, keys: Sequence[str | int]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _describe_obstacle(settings: Mapping[str, Any], path: str) -> str:
    """Return a text about the first part of `path` that is missing or cannot contain fields."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        prefix = ".".join(parts[:end])
        if (value := lookup(settings, prefix)) is MISSING:
            return f"{prefix} is not there"
        if isinstance(value, list | tuple):
            if end == len(parts) - 1 or lookup(settings, ".".join(parts[: end + 1])) is MISSING:
                return f"{prefix} is {format_value(value)} and has no position {parts[end]}"
        elif not isinstance(value, Mapping):
            return f"{prefix} is {format_value(value)}"
    return f"{path} is not there"


def _replace(container: Any, keys: Sequence[str | int], value: Any) -> Any:
    """Return a copy of `container` with `value` at `keys`; all other values are shared with `container`."""
    if not keys:
        return value
    head, *rest = keys
    if isinstance(container, Mapping):
        return {**container, head: _replace(container.get(head), rest, value)}
    assert isinstance(head, int), "items of lists are found by position"
    return [*container[:head], _replace(container[head], rest, value), *container[head + 1 :]]


def with_values(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `settings` with each of `values` at its path; unchanged parts are shared.

    Raises:
        ValueError: A part of a path other than the last does not exist.
    """
    changed = dict(settings)
    for path, value in values.items():
        changed = with_value(changed, path, value)
    return changed


class Paths:
    """An ordered set of paths with a fast search for overlapping ones."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._members_below: dict[str, dict[str, int]] = {}
        """By path, the members of the set that equal it or are below it, with their positions."""
        self._places: dict[str, int] = {}
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Append `path` unless the set contains it."""
        position = self._places.setdefault(path, len(self._places))
        for part in _ancestors(path):
            self._members_below.setdefault(part, {})[path] = position

    def overlapping(self, path: str) -> list[str]:
        """Return the paths of the set that `overlap` with `path`, in the order in which they were added."""
        places = dict(self._members_below.get(path, {}))
        places |= {part: self._places[part] for part in _ancestors(path) if part in self._places}
        return sorted(places, key=places.__getitem__)


def _ancestors(path: str) -> Iterator[str]:
    """Yield every ancestor of `path` from the root, and `path` itself."""
    dots = [position for position, letter in enumerate(path) if letter == "."]
    yield from (path[:end] for end in [*dots, len(path)])


def overlap(first: str, second: str) -> bool:
    """Return whether the paths are equal or one is below the other, so that setting one changes the other."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")
