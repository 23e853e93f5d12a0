"""Which code of others a spec names, found before any of it is imported."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.spec.document import read_file
from search_spaces.paths import ROOTS
from trainables import catalog
from trainables.extensions import is_module_name

_KINDS: Mapping[str, catalog.Kind] = {"model": "models", "task": "tasks"}


def outside_names(path: Path, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """Modules, and names of installed ones, that planning the spec at `path` may import.

    Nothing is found in a file that no spec can be read from. A pipe is read once, as for planning.
    """
    written = read_file(path).data
    set_here = {key: value for key, _, value in (each.partition("=") for each in overrides)}
    return tuple(dict.fromkeys((*_named(written, ""), *_named(set_here, ""))))


def _named(written: Any, at: str) -> Iterator[str]:
    if isinstance(written, Mapping):
        for key, value in written.items():
            yield from _named(value, f"{at}.{key}")
    elif isinstance(written, list):
        for value in written:
            yield from _named(value, at)
    elif isinstance(written, str) and _is_outside(written.strip(), at.split(".")):
        yield written.strip()


def _is_outside(value: str, at: Sequence[str]) -> bool:
    """Whether the text `value` at this place can be code of others; paths of settings are none."""
    if at[-1] == "trainable":
        return True
    if at[-1] == "name" and at[-2] in _KINDS:
        return catalog.is_outside(_KINDS[at[-2]], value)
    return is_module_name(value) and value.partition(".")[0] not in ROOTS
