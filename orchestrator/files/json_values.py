"""JSON of files as values; dataclasses as such values and back: plans, events, jobs of workers, notes.

Pydantic does the work. Values that `from_json_values` reads were written by us, so that a number in a text
and the like is no concern here: damage is found by the digests of what is read.
"""

import json
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def parsed(text: str | bytes) -> Any:
    """The values that the JSON `text` holds. Raises ValueError if it is none, or nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it must be nested less deeply than Python can read") from None


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
    try:
        made: T = _adapter(wanted).validate_python(values)
    except ValidationError as error:
        # Not what was given: it may be a URL with a password.
        reasons = (
            f"{'.'.join(map(str, each['loc'])) or kind.__name__}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise ValueError("; ".join(reasons)) from None
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
