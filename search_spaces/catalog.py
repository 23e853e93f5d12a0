"""Find the built-in search spaces by file name: a file in `search_spaces` that defines `published`.

A space file has one module-level `Space` per variant: `published`, the ranges that papers state, and wider
variants. `orchestrator.search.space_catalog` defines their names in a spec, and adds spaces from other
packages.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType

import search_spaces
from search_spaces.dimensions import Space

DEFAULT_VARIANT = "published"


@cache
def names() -> tuple[str, ...]:
    """Return the sorted names of the files that define spaces."""
    files = sorted(entry.name for entry in pkgutil.iter_modules(search_spaces.__path__))
    return tuple(name for name in files if DEFAULT_VARIANT in variants(_module(name)))


def variants(module: ModuleType) -> dict[str, Space]:
    """Return every space that `module` defines, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Space)}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.{name}")
