"""Finds models and tasks by file name: a file in `trainables/models` or `trainables/tasks` registers them."""

import difflib
import importlib
import pkgutil
from functools import cache
from importlib import util
from types import ModuleType
from typing import Literal

Kind = Literal["models", "tasks"]


class UnknownName(LookupError):
    """No such model or task; the message names the nearest one and lists all."""


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """Sorted names of all entries, found without importing any of them."""
    spec = util.find_spec(f"trainables.{kind}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = pkgutil.iter_modules(list(spec.submodule_search_locations))
    return tuple(sorted(entry.name for entry in found if not entry.name.startswith("_")))


def load(kind: Kind, name: str) -> ModuleType:
    """The module that defines `name`. Raises `UnknownName`."""
    if name not in names(kind):
        near = difflib.get_close_matches(name, names(kind), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownName(
            f"no {kind.removesuffix('s')} named {name!r}.{hint} Known: {', '.join(names(kind))}"
        )
    return importlib.import_module(f"trainables.{kind}.{name}")
