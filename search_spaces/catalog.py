"""Finds ready-made spaces by file name: a file in `search_spaces` that defines `published` is one.

A space file holds one module-level `Space` for each of its variants: `published`, the ranges that papers
state, and wider ones. `halting` names the published variant, `halting.wide` another.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType

import search_spaces
from search_spaces.dimensions import Space
from search_spaces.nearest import hint

DEFAULT_VARIANT = "published"


class UnknownSpace(LookupError):
    """No such space or variant; the message names the nearest one and lists all."""


@cache
def names() -> tuple[str, ...]:
    """Sorted names of all ready-made spaces, without variants."""
    found = (entry.name for entry in pkgutil.iter_modules(search_spaces.__path__))
    return tuple(sorted(name for name in found if DEFAULT_VARIANT in variants(_module(name))))


def variants(module: ModuleType) -> dict[str, Space]:
    """The variants a space file offers, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Space)}


@cache
def full_names() -> tuple[str, ...]:
    """Everything a spec can name: `halting` and `halting.wide`, but not `halting.published`."""
    return tuple(
        name if variant == DEFAULT_VARIANT else f"{name}.{variant}"
        for name in names()
        for variant in sorted(variants(_module(name)), key=lambda one: (one != DEFAULT_VARIANT, one))
    )


def load(full_name: str) -> Space:
    """The space called `full_name`. Raises `UnknownSpace`."""
    name, _, variant = full_name.partition(".")
    if name in names():
        offered = variants(_module(name))
        if (variant or DEFAULT_VARIANT) in offered:
            return offered[variant or DEFAULT_VARIANT]
    raise UnknownSpace(f"no search space named {full_name!r}. {hint(full_name, full_names())}")


def describe(full_name: str) -> str:
    """The first line of the space file's docstring. Raises `UnknownSpace`."""
    load(full_name)
    text = _module(full_name.partition(".")[0]).__doc__ or ""
    return text.strip().partition("\n")[0]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.{name}")
