"""Dotted paths into settings: `model.halt.threshold` is the field `threshold` of `halt` of `model`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from search_spaces.wording import nearest, shown

ROOTS: Final = ("task", "model", "train")
"""What every path of the built-in trainable begins with: the three mappings that its settings are made of."""

_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Missing:
    """The type of `MISSING`: told apart from a field whose value is null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def path_problem(path: str) -> str | None:
    """What is wrong with `path` as text; None if it could name a field of some trainable."""
    if not all(_PART.fullmatch(part) for part in path.split(".")):
        field, _, value = path.partition(":")
        remedy = f"; write '{field}: {value}', with a space, if it is field and value" if value else ""
        return f"a path must be names joined by single dots, got {path!r}{remedy}"
    return None


def built_in_problem(path: str) -> str | None:
    """What is wrong with `path` as text; None if it could name a field of the built-in trainable."""
    root, *fields = path.split(".")
    if root not in ROOTS:
        near = nearest(root, ROOTS)
        question = f". Did you mean {'.'.join([near, *fields])!r}?" if near is not None else ""
        return f"a path must begin with task, model or train, got {path!r}{question}"
    if not fields:
        return f"a path must name a field, e.g. '{root}.name', got {path!r}"
    return path_problem(path)


def lookup(settings: Mapping[str, Any], path: str) -> Any:
    """The value at `path`, or `MISSING` if a part of the path is not there."""
    value: Any = settings
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that holds no mapping, by dotted path; lists and empty mappings are values."""
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def with_value(settings: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `settings` with `value` at `path`. Raises ValueError if the path leads through no mapping."""
    head, *rest = path.split(".")
    return _with_value(settings, (head, *rest), value, "")


def with_values(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `settings` with each of `values` at its path; what is on no path is shared.

    Raises ValueError if a path leads through no mapping.
    """
    changed = dict(settings)
    for path, value in values.items():
        changed = with_value(changed, path, value)
    return changed


def _with_value(inner: Mapping[str, Any], keys: tuple[str, ...], value: Any, at: str) -> dict[str, Any]:
    head, *rest = keys
    here = f"{at}.{head}" if at else head
    if not rest:
        return {**inner, head: value}
    below = inner.get(head, MISSING)
    if not isinstance(below, Mapping):
        given = "is not there" if below is MISSING else f"is {shown(below)}"
        raise ValueError(f"{'.'.join([here, *rest])} is nowhere: {here} {given}")  # noqa: TRY004
    return {**inner, head: _with_value(below, tuple(rest), value, here)}


class Paths:
    """Paths in order, of which those that touch another one are found without a look at all of them."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._inside: dict[str, dict[str, int]] = {}
        """By every part from the root, what is it or lies inside it, with its place."""
        self._places: dict[str, int] = {}
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Put `path` after the others."""
        place = self._places.setdefault(path, len(self._places))
        for part in _from_root(path):
            self._inside.setdefault(part, {})[path] = place

    def touching(self, path: str) -> list[str]:
        """Those that `overlap` with `path`, in order."""
        found = dict(self._inside.get(path, {}))
        found |= {part: self._places[part] for part in _from_root(path) if part in self._places}
        return sorted(found, key=found.__getitem__)


def _from_root(path: str) -> Iterator[str]:
    """Every path that `path` is or lies inside."""
    ends = [place for place, letter in enumerate(path) if letter == "."]
    yield from (path[:end] for end in [*ends, len(path)])


def overlap(first: str, second: str) -> bool:
    """Whether one path is the other or lies inside it, so that setting one touches the other."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")
