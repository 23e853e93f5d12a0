"""Look up the type and the known names at any place of a spec."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from orchestrator.spec.kinds import Path
from orchestrator.spec.section import Section
from orchestrator.spec.types import Spec
from search_spaces.dimensions import Dimension


def type_below(kind: Any, key: str | int) -> Any:
    """Return the type at `key` inside a value of type `kind`.

    `Any` if any value is allowed, None if there is no such key.
    """
    kind = bare_type(kind)
    if kind is Any:
        return Any
    if isinstance(kind, type) and issubclass(kind, Section):
        types = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        return types.get(str(key))
    arguments = get_args(kind)
    if get_origin(kind) is Mapping and isinstance(key, str):
        return arguments[1]
    if get_origin(kind) is tuple and isinstance(key, int):
        return arguments[0]
    return None


def type_at(keys: tuple[str | int, ...], spec: type[Spec] = Spec) -> Any:
    """Return the type at `keys` inside a spec of type `spec`; None if there is no such place."""
    kind: Any = spec
    for key in keys:
        kind = type_below(kind, key)
    return kind


def has_dotted_keys(kind: Any) -> bool:
    """Return whether a value of type `kind` is a mapping by field paths, so that dots are part of the key."""
    kind = bare_type(kind)
    return get_origin(kind) is Mapping and get_args(kind)[0] == Path


def known_keys(kind: Any) -> tuple[str, ...]:
    """Return the keys of a section of type `kind`; empty for any other type."""
    kind = bare_type(kind)
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        return ()
    return tuple(field.alias or name for name, field in kind.model_fields.items())


def bare_type(kind: Any) -> Any:
    """Return `kind` without annotations and null; if its written form is another type, return that type."""
    if get_origin(kind) is Annotated:
        return bare_type(get_args(kind)[0])
    if kind == tuple[Dimension, ...]:
        return Mapping[Path, Any]
    if get_origin(kind) in {Union, UnionType}:
        kinds = [bare_type(part) for part in get_args(kind) if part is not NoneType]
        sections = [part for part in kinds if isinstance(part, type) and issubclass(part, Section)]
        return kinds[0] if len(kinds) == 1 or sections == kinds else kind
    return kind
