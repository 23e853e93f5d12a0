"""What is known of a quantity that trials measure, for plans, searches and reports to look up.

Whatever computes a quantity declares it beside the code, in a tuple `metrics`: training, heads and tasks of
the box, and trainables of others alike.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

KEYS = ("better", "unit", "range", "floor", "meaning", "cost")
TRAIN_FLOPS = "train/flops"
"""What a budget of FLOPs goes by: those of training since the trial began, across restarts."""
Place = Literal["table", "headline", "beside", "posthoc", "figure"]
"""Where a report shows a quantity: in its own table; as what the first table is about; beside that; where
checkpoints are read again; as a figure."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity, as it is measured on every split."""

    name: str
    """E.g. `accuracy`."""
    better: Literal["max", "min"] | None = None
    """Whether large or small values are good; None where that cannot be said."""
    unit: str = ""
    low: float | None = None
    """No value is below; None where there is no bound."""
    high: float | None = None
    """No value is above; None where there is no bound."""
    floor: float | None = None
    """What needs no learning, e.g. the share of the commonest class; None where measured or unknown."""
    meaning: str = ""
    """What a reader who has not seen the name before is told."""
    note: str = ""
    """What a reader of its numbers must know, as a sentence."""
    split: str = ""
    """The only part of a trial that it is measured of, e.g. `train`; empty: every split that is read."""
    shown: tuple[Place, ...] = ("table", "posthoc")
    """Empty for what only helps to read others."""
    floor_from: str = ""
    """The quantity of the same split that measures its floor."""
    high_from: str = ""
    """The quantity of the same split that measures its greatest value, where that is the arm's and not known
    beforehand."""
    floor_name: str = "as declared"
    """What reaches the floor, e.g. `most common label`."""
    given: str = ""
    """Why no search can be for it, to follow "which"; empty where one can."""
    is_cost: bool = False
    """Whether it is what a model spends on an example: arms are also compared where they spend the same."""
    moves_with: str = ""
    """The quantity of one forward pass that moves where this one does: only where something halts."""

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest value there can be."""
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)


def look_up(metrics: Iterable[Metric], name: str) -> Metric:
    """What `metrics` say of `name`, a quantity with or without its split; of one they lack, only its name."""
    split, _, quantity = name.rpartition("/")
    named = [each for each in metrics if each.name == quantity and each.split in ("", split)]
    return max(named, key=lambda each: each.split, default=Metric(quantity))


def declared(written: object) -> tuple[Metric, ...]:
    """The metrics that a trainable declares: a mapping from name to what is known, by the names in `KEYS`.

        metrics = {"accuracy": {"better": "max", "range": [0, 1], "floor": 0.1}, "depth": {"cost": True}}

    A `cost` is what is spent on an example: arms are also compared where they spend the same. Raises
    ValueError for anything else.
    """
    if isinstance(written, Mapping):
        made = tuple(_metric(name, said) for name, said in written.items())
        _check_all(made)
        return made
    found = tuple(written) if isinstance(written, Iterable) else (None,)
    if all(isinstance(each, Metric) for each in found):
        made = tuple(replace(each, low=_bound(each.low), high=_bound(each.high)) for each in found)
        _check_all(made)
        return made
    raise ValueError(f"metrics must be a mapping from name to what is known of it, got {written!r}")


def _check_all(metrics: Sequence[Metric]) -> None:
    """Raises ValueError for the first metric that is not as it must be, or is there twice."""
    seen: set[tuple[str, str]] = set()
    for each in metrics:
        name = each.name
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"a metric must be declared by its name without a split, got {name!r}")
        if (name, each.split) in seen:
            raise ValueError(f"a metric must be declared once, got {name} twice")
        seen.add((name, each.split))
        if each.better not in ("max", "min", None):
            raise ValueError(f"better must be max or min, got {each.better!r} for {name}")
        for end in (each.low, each.high, each.floor):
            if end is not None and not (_is_number(end) and math.isfinite(end)):
                raise ValueError(f"a range and a floor must be finite numbers, got {end!r} for {name}")
        low, high = each.span
        if not low < high:
            raise ValueError(f"a range must go up, got [{low:g}, {high:g}] for {name}")
        if each.floor is not None and not low <= each.floor <= high:
            raise ValueError(
                f"a floor must be within the range [{low:g}, {high:g}], got {each.floor:g} for {name}"
            )
        if unknown := [place for place in each.shown if place not in get_args(Place)]:
            known = ", ".join(get_args(Place))
            raise ValueError(f"a metric must be shown in some of {known}, got {unknown[0]!r} for {name}")


def _metric(name: Any, said: Any) -> Metric:
    if not isinstance(said, Mapping) or (unknown := [key for key in said if key not in KEYS]):
        given = said if not isinstance(said, Mapping) else unknown[0]
        raise ValueError(f"a metric must be described by {', '.join(KEYS)}, got {given!r} for {name}")
    low, high = _range(name, said.get("range"))
    floor = said.get("floor")
    if floor is not None and not _is_number(floor):
        raise ValueError(f"a floor must be a number, got {floor!r} for {name}")
    cost, meaning = said.get("cost", False), str(said.get("meaning", ""))
    if not isinstance(cost, bool):
        raise ValueError(f"a cost must be true or false, got {cost!r} for {name}")  # noqa: TRY004
    unit = str(said.get("unit", ""))
    return Metric(name, said.get("better"), unit, low, high, floor, meaning=meaning, is_cost=cost)


def _range(name: str, given: Any) -> tuple[float | None, float | None]:
    if given is None:
        return None, None
    ends = list(given) if isinstance(given, list | tuple) else []
    if len(ends) != 2 or not all(end is None or _is_number(end) for end in ends):
        raise ValueError(f"a range must be [low, high], null for no bound, got {given!r} for {name}")
    low, high = (None if end is None else _bound(float(end)) for end in ends)
    return low, high


def _bound(end: float | None) -> float | None:
    """JSON has no infinity, and no bound is none."""
    return None if end is None or (_is_number(end) and math.isinf(end)) else end


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:  # an integer that no float holds
        return False
