"""What a trainable may say of the quantities that it measures."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

KEYS = ("better", "unit", "range", "floor")


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity, as it is measured on every split."""

    name: str
    """E.g. `accuracy`."""
    better: Literal["max", "min"] | None = None
    """Whether large or small values are good; None where that cannot be said."""
    unit: str = ""
    low: float = -math.inf
    """No value is below."""
    high: float = math.inf
    """No value is above."""
    floor: float | None = None
    """What needs no learning, e.g. the share of the commonest class."""


def declared(written: object) -> tuple[Metric, ...]:
    """The metrics that a trainable declares: a mapping from name to `better`, `unit`, `range` and `floor`.

        metrics = {"accuracy": {"better": "max", "range": [0, 1], "floor": 0.1}, "depth": {}}

    Raises ValueError for anything else.
    """
    if isinstance(written, Mapping):
        return tuple(_metric(name, said) for name, said in written.items())
    found = tuple(written) if isinstance(written, Iterable) else (None,)
    if all(isinstance(each, Metric) for each in found):
        return found
    raise ValueError(f"metrics must be a mapping from name to what is known of it, got {written!r}")


def _metric(name: Any, said: Any) -> Metric:
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"a metric must be declared by its name without a split, got {name!r}")
    if not isinstance(said, Mapping) or (unknown := [key for key in said if key not in KEYS]):
        given = said if not isinstance(said, Mapping) else unknown[0]
        raise ValueError(f"a metric must be described by {', '.join(KEYS)}, got {given!r} for {name}")
    if (better := said.get("better")) not in ("max", "min", None):
        raise ValueError(f"better must be max or min, got {better!r} for {name}")
    low, high = _range(name, said.get("range"))
    floor = said.get("floor")
    if floor is not None and not _is_number(floor):
        raise ValueError(f"a floor must be a number, got {floor!r} for {name}")
    return Metric(name, better, str(said.get("unit", "")), low, high, floor)


def _range(name: str, given: Any) -> tuple[float, float]:
    if given is None:
        return -math.inf, math.inf
    ends = list(given) if isinstance(given, list | tuple) else []
    if len(ends) != 2 or not all(end is None or _is_number(end) for end in ends):
        raise ValueError(f"a range must be [low, high], null for no bound, got {given!r} for {name}")
    low = -math.inf if ends[0] is None else float(ends[0])
    high = math.inf if ends[1] is None else float(ends[1])
    if not low < high:
        raise ValueError(f"a range must go up, got {given!r} for {name}")
    return low, high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
