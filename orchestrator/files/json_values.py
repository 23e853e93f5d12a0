"""Convert JSON to values, and dataclasses to JSON values and back, with pydantic.

`from_json_values` reads only values that haltsweep wrote, so that lenient conversions, such as of a text to a
number, do no harm. Damage is detected by digests.
"""

import json
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def parse_json(text: str | bytes) -> Any:
    """Return the value of the JSON `text`.

    Raises:
        ValueError: If it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it must be nested less deeply than Python can read") from None


def to_json_values(value: Any) -> Any:
    """Return a dataclass, or a container of dataclasses, as mappings, lists and scalars."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def from_json_values(kind: type[T], values: Any) -> T:
    """Return the dataclass `kind` with the field values in `values`.

    Raises:
        ValueError: For missing, unknown or wrongly typed fields; the message lists all of them.
    """
    target_type: Any = kind
    unknown_fields = sorted(set(values) - {field.name for field in fields(target_type)})
    if unknown_fields:
        raise ValueError(f"{kind.__name__} has unknown fields: {', '.join(unknown_fields)}")
    try:
        value: T = _adapter(target_type).validate_python(values)
    except ValidationError as error:
        # The message omits the input, which may be a URL with a password.
        reasons = (
            f"{'.'.join(map(str, details['loc'])) or kind.__name__}: {details['msg']}"
            for details in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise ValueError("; ".join(reasons)) from None
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
