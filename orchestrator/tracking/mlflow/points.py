"""Convert metrics to names and values that MLflow accepts."""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from orchestrator.identity import digest
from search_spaces.wording import escape_unprintable
from trainables.protocol import Measurement

PREFIX = "haltsweep."
"""Prefix of haltsweep's tags."""
MAX_NAME = 250
"""Maximum number of characters of a name in MLflow."""
MAX_TAG = 1000
"""Maximum number of characters of a metric's name in a tag."""
EMPTY_PART = "_x_"
"""Replacement for an empty part between two slashes, which MLflow refuses."""
_REFUSED = re.compile(r"[^\w/.\- :]|_(?=x[0-9a-f]*([^\w/.\- :]|_))")
"""Characters that MLflow refuses, and underscores that would look like a code point."""
_LEADING_DOTS = re.compile(r"^\.+")
_ONLY_DOTS = re.compile(r"^\.{1,2}$")


class Point(NamedTuple):
    """One value of a metric."""

    key: str
    value: float
    at_ms: int
    step: int


def finite_points(measurement: Measurement, at_ms: int) -> list[Point]:
    """Return the finite values by name, with the time of the event, so that MLflow ignores duplicates."""
    values = {**measurement.metrics, "time/seconds": measurement.seconds}
    return [
        Point(metric_key(name), float(value), at_ms, measurement.step)
        for name, value in sorted(values.items())
        if math.isfinite(value)
    ]


@lru_cache(maxsize=4096)
def metric_key(name: str) -> str:
    """Return a unique key for a metric's name that MLflow accepts.

    Each character that MLflow refuses becomes its code point: `mAP@50` is stored as `mAP_x40_50`. Path parts
    of only dots, and underscores that would look like a code point, are replaced in the same way. Names that
    are too long end in a digest. All other names are unchanged.
    """
    parts = _REFUSED.sub(_code_point, name).split("/")
    key = "/".join(_ONLY_DOTS.sub(_code_point, part) if part else EMPTY_PART for part in parts)
    if key.startswith(".."):  # MLflow interprets the name as a parent folder
        key = _LEADING_DOTS.sub(_code_point, key)
    if len(key) <= MAX_NAME:
        return key
    name_digest = digest(name)
    return f"{key[: MAX_NAME - len(name_digest) - 1]}_{name_digest}"


def _code_point(character: re.Match[str]) -> str:
    return "".join(f"_x{ord(letter):x}_" for letter in character.group())


def original_names(names: Iterable[str]) -> dict[str, str]:
    """Return tags with the original names of metrics that MLflow stores under other keys."""
    keys = {name: metric_key(name) for name in names}
    prefix = f"{PREFIX}metric."
    # Long keys are cut at the front, since their unique part is the digest at the end.
    return {
        prefix + key[-(MAX_NAME - len(prefix)) :]: escape_unprintable(name[:MAX_TAG])
        for name, key in keys.items()
        if key != name
    }


def milliseconds(time: float) -> int:
    """Return a time in Unix milliseconds, the unit of MLflow."""
    return round(time * 1000)
