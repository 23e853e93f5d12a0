"""Dataclasses as JSON values and back, by their types: plans, ledger events, jobs of workers, notes in files.

Pydantic does the work. Values that `from_json_values` reads were written by us, so that a number in a text
and the like is no concern here: damage is found by the digests of what is read.
"""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def to_json_values(value: Any) -> Any:
    """`value`, a dataclass or a container of such, in mappings, lists and scalars."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_json_values(kind: type[T], values: Any) -> T:
    """The dataclass `kind` that `values` describe.

    Raises ValueError for anything else, with every field that is missing, unknown or of another type.
    """
    wanted: Any = kind
    unknown = sorted(set(values) - {field.name for field in fields(wanted)})
    if unknown:
        raise ValueError(f"{kind.__name__} must have fields of its own only, got {', '.join(unknown)}")
    made: T = _adapter(wanted).validate_python(values)
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
