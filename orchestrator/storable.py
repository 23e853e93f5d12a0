"""Text that no database and no file refuses: lone surrogates and NULs written as escapes."""

import re
from collections.abc import Mapping
from typing import Any

_REFUSED = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """`text`, readable, in characters that can be encoded and that PostgreSQL takes."""
    return _REFUSED.sub(lambda found: repr(found[0])[1:-1], text)


def storable_value(value: Any) -> Any:
    """A JSON value with every text in it, keys included, made `storable`."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable(str(key)): storable_value(each) for key, each in value.items()}
        case list() | tuple():
            return [storable_value(each) for each in value]
        case _:
            return value
