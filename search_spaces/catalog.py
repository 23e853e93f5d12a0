"""Finds our ready-made spaces by file name: a file in `search_spaces` that defines `published` is one.

A space file holds one module-level `Space` for each of its variants: `published`, the ranges that papers
state, and wider ones. What a spec calls them, and those from outside: `orchestrator.search.space_catalog`.
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
    """Sorted names of the files that hold spaces."""
    files = sorted(entry.name for entry in pkgutil.iter_modules(search_spaces.__path__))
    return tuple(name for name in files if DEFAULT_VARIANT in variants(_module(name)))


def variants(module: ModuleType) -> dict[str, Space]:
    """Every space that `module` defines, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Space)}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.{name}")
