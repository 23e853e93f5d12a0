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
from search_spaces.wording import hint

DEFAULT_VARIANT = "published"


class UnknownSpace(LookupError):
    """No such space or variant; the message names the nearest one and lists all."""


@cache
def names() -> tuple[str, ...]:
    """Sorted names of all ready-made spaces, without variants."""
    return tuple(dict.fromkeys(full_name.partition(".")[0] for full_name in _all()))


def full_names() -> tuple[str, ...]:
    """Everything a spec can name: `halting` and `halting.wide`, but not `halting.published`."""
    return tuple(_all())


def load(full_name: str) -> Space:
    """The space called `full_name`. Raises `UnknownSpace`."""
    if full_name not in _all():
        raise UnknownSpace(f"no search space named {full_name!r}. {hint(full_name, full_names())}")
    return _all()[full_name]


def describe(full_name: str) -> str:
    """The first line of the space file's docstring. Raises `UnknownSpace`."""
    load(full_name)
    text = _module(full_name.partition(".")[0]).__doc__ or ""
    return text.strip().partition("\n")[0]


@cache
def _all() -> dict[str, Space]:
    found: dict[str, Space] = {}
    for name in sorted(entry.name for entry in pkgutil.iter_modules(search_spaces.__path__)):
        variants = {key: value for key, value in vars(_module(name)).items() if isinstance(value, Space)}
        if DEFAULT_VARIANT in variants:
            found[name] = variants.pop(DEFAULT_VARIANT)
            found |= {f"{name}.{variant}": variants[variant] for variant in sorted(variants)}
    return found


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"search_spaces.{name}")
