"""Dataclasses as JSON values and back, by their types: plans, ledger events, jobs of workers, notes in files.

Pydantic does the work. Values that `from_json_values` reads were written by us, so that a number in a text
and the like is no concern here: damage is found by the digests of what is read.
"""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def to_json_values(value: Any) -> Any:
    """`value`, a dataclass or a container of such, in mappings, lists and scalars."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_json_values(kind: type[T], values: Any) -> T:
    """The `kind` that `values` describe; unknown keys are passed over.

    Raises ValueError for anything else, with every field that is missing or of another type.
    """
    wanted: Any = kind
    made: T = _adapter(wanted).validate_python(values)
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
