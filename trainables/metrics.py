"""Declare properties of the quantities that trials measure, for plans, searches and reports to look up.

Every module that computes a quantity declares it in a tuple `metrics`. This applies to training, heads and
built-in tasks as well as to trainables of other packages.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

KEYS = ("better", "unit", "range", "floor", "meaning", "cost")
TRAIN = "train"
"""Split of metrics measured during training."""
TEST = "test"
"""Word for test data in names of metrics."""
VALIDATION_SPLITS = ("valid", "val", "validation", "eval", "dev")
"""Words before the first slash of a metric's name that denote validation data."""
TRAIN_FLOPS = "train/flops"
"""Metric that a budget of FLOPs limits: FLOPs of training since the trial began, across restarts."""
DIGEST = "digest"
"""Name of the attribute, after a split, that identifies the evaluated examples of a trial: `test/digest`."""
HIGHER_IS_BETTER = {
    *("acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "hits", "iou", "map", "miou", "mrr"),
    *("ndcg", "precision", "r2", "recall", "rouge"),
}
LOWER_IS_BETTER = {"cer", "error", "loss", "mae", "mse", "nll", "perplexity", "ppl", "rmse", "wer"}
NEGATED = {"neg", "negative", "minus"}
"""Words in names of metrics: those for which higher is better, those for which lower is better, and words
that negate, as in `neg_mean_squared_error`.
"""
_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")
Place = Literal["table", "headline", "beside", "posthoc", "figure"]
"""Place where a report displays a quantity: a table of its values, the first table's main quantity, a column
next to the main quantity, the table of re-evaluated checkpoints, or a figure.
"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that is measured on every split."""

    name: str
    """Name of the quantity, e.g. `accuracy`."""
    better: Literal["max", "min"] | None = None
    """Whether large or small values are good; None if neither."""
    unit: str = ""
    low: float | None = None
    """Lower bound of the values; None if unbounded."""
    high: float | None = None
    """Upper bound of the values; None if unbounded."""
    floor: float | None = None
    """Value reached without learning, e.g. the share of the most common class; None if measured or unknown.
    """
    meaning: str = ""
    """Explanation for a reader who does not know the name."""
    note: str = ""
    """Caveat on the numbers, as a sentence."""
    split: str = ""
    """The only split on which the quantity is measured, e.g. `train`; empty: every evaluated split."""
    shown: tuple[Place, ...] = ("table", "posthoc")
    """Places where reports display the quantity; empty for quantities that only help to interpret others."""
    floor_from: str = ""
    """Name of the quantity of the same split that measures the floor."""
    high_from: str = ""
    """Name of the quantity of the same split that measures the greatest value, if that depends on the arm and
    is not known in advance.
    """
    floor_name: str = "as declared"
    """Name of the baseline that reaches the floor, e.g. `most common label`."""
    given: str = ""
    """Reason why a search cannot optimise the quantity, worded to follow "which"; empty if it can."""
    is_cost: bool = False
    """Whether the quantity is a cost per example: arms are also compared at equal cost."""
    moves_with: str = ""
    """Name of the quantity of one forward pass that changes together with this quantity; set only for
    quantities that depend on halting.
    """

    @property
    def span(self) -> tuple[float, float]:
        """Return the least and the greatest possible value."""
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)


def split_and_quantity(name: str) -> tuple[str, str]:
    """Split a metric's name at its first slash.

    `valid/macro avg/f1` is the quantity `macro avg/f1` of the split `valid`. A name without a slash, such as
    `eval_loss`, is a quantity without a split: then the first item is empty.
    """
    split, slash, quantity = name.partition("/")
    return (split, quantity) if slash else ("", name)


def metric_name(split: str, quantity: str) -> str:
    """Join a split and a quantity to the name of a metric: the inverse of `split_and_quantity`."""
    return f"{split}/{quantity}" if split else quantity


def look_up(metrics: Iterable[Metric], name: str) -> Metric:
    """Return the declaration of the metric `name`, or a new one that contains only its quantity.

    `name` is the full name of a metric or a quantity without its split: `macro avg/f1` is matched as either.
    """
    split, quantity = split_and_quantity(name)
    candidates = [
        metric for metric in metrics if metric.name in (name, quantity) and metric.split in ("", split)
    ]
    return max(candidates, key=lambda metric: (metric.split, len(metric.name)), default=Metric(quantity))


def usual_goal(metric: str) -> Literal["max", "min"] | None:
    """Return the goal that words in the last part of a metric's name suggest; None for no goal or both."""
    name = metric.rpartition("/")[2]
    words = {*re.split(r"[^a-z0-9]+", name.lower()), *(word.lower() for word in _WORD.findall(name))}
    if words & NEGATED:
        return None
    higher, lower = bool(words & HIGHER_IS_BETTER), bool(words & LOWER_IS_BETTER)
    return None if higher == lower else "max" if higher else "min"


def parse_metrics(description: object) -> tuple[Metric, ...]:
    """Return the metrics that a trainable declares by name, with properties from `KEYS`.

        metrics = {"accuracy": {"better": "max", "range": [0, 1], "floor": 0.1}, "depth": {"cost": True}}

    A `cost` is a quantity spent per example: arms are also compared at equal cost. An iterable of `Metric` is
    accepted too.

    Raises:
        ValueError: The declaration is invalid; the message lists all faults.
    """
    if isinstance(description, Mapping):
        descriptions = [(name, properties) for name, properties in description.items() if _is_name(name)]
        faults = [_name_error(name) for name in description if not _is_name(name)]
        faults += [
            fault for name, properties in descriptions for fault in _description_faults(name, properties)
        ]
        metrics = [] if faults else [_metric(name, properties) for name, properties in descriptions]
    else:
        declarations = tuple(description) if isinstance(description, Iterable) else (None,)
        if not all(isinstance(item, Metric) for item in declarations):
            raise ValueError(f"metrics must be a mapping from name to description, got {description!r}")
        metrics = [
            replace(metric, low=_bound(metric.low), high=_bound(metric.high)) for metric in declarations
        ]
        faults = [_name_error(metric.name) for metric in metrics if not _is_name(metric.name)]
    metrics_with_name = [metric for metric in metrics if _is_name(metric.name)]
    faults += [fault for metric in metrics_with_name for fault in _faults(metric)]
    counts = Counter((metric.name, metric.split) for metric in metrics_with_name)
    faults += [
        f"a metric must be declared once, got {name} twice" for (name, _), n in counts.items() if n > 1
    ]
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(metrics)


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and bool(name)
        and split_and_quantity(name)[0] not in (*VALIDATION_SPLITS, TRAIN, TEST)
    )


def _name_error(name: object) -> str:
    """Return the error message for an invalid name."""
    quantity = split_and_quantity(name)[1] if isinstance(name, str) else ""
    remedy = f"; write {quantity!r}, for all splits" if quantity else ""
    return f"a metric must be declared by its name without a split, got {name!r}{remedy}"


def _faults(metric: Metric) -> Iterator[str]:
    """Yield all faults in the declaration of a quantity."""
    name = metric.name
    if metric.better not in ("max", "min", None):
        yield f"better must be max or min, got {metric.better!r} for {name}"
    bounds = (metric.low, metric.high, metric.floor)
    infinite = [end for end in bounds if end is not None and not (_is_number(end) and math.isfinite(end))]
    for end in infinite:
        yield f"a range and a floor must be finite numbers, got {end!r} for {name}"
    low, high = metric.span
    if not infinite and not low < high:
        yield f"a range must go up, got [{low:g}, {high:g}] for {name}"
    elif not infinite and metric.floor is not None and not low <= metric.floor <= high:
        yield f"a floor must be within the range [{low:g}, {high:g}], got {metric.floor:g} for {name}"
    if unknown_places := [place for place in metric.shown if place not in get_args(Place)]:
        places = ", ".join(get_args(Place))
        yield f"a metric must be shown in some of {places}, got {unknown_places[0]!r} for {name}"


def _description_faults(name: str, description: Any) -> Iterator[str]:
    """Yield all faults that prevent a description from being parsed."""
    if not isinstance(description, Mapping):
        yield f"a metric must be described by {', '.join(KEYS)}, got {description!r} for {name}"
        return
    for key in description:
        if key not in KEYS:
            yield f"a metric must be described by {', '.join(KEYS)}, got {key!r} for {name}"
    value_range, floor, cost = (
        description.get("range"),
        description.get("floor"),
        description.get("cost", False),
    )
    if value_range is not None:
        bounds = list(value_range) if isinstance(value_range, list | tuple) else []
        if len(bounds) != 2 or not all(end is None or _is_number(end) for end in bounds):
            yield f"a range must be [low, high], null for no bound, got {value_range!r} for {name}"
    if floor is not None and not _is_number(floor):
        yield f"a floor must be a number, got {floor!r} for {name}"
    if not isinstance(cost, bool):
        yield f"a cost must be true or false, got {cost!r} for {name}"


def _metric(name: str, description: Mapping[str, Any]) -> Metric:
    """Return the metric for a valid description."""
    low, high = (
        None if end is None else _bound(float(end)) for end in description.get("range") or (None, None)
    )
    return Metric(
        name,
        description.get("better"),
        str(description.get("unit", "")),
        low,
        high,
        description.get("floor"),
        meaning=str(description.get("meaning", "")),
        is_cost=description.get("cost", False),
    )


def _bound(end: float | None) -> float | None:
    """Return the bound, or None if it is infinite: JSON has no infinity, and None means unbounded."""
    return None if end is None or (_is_number(end) and math.isinf(end)) else end


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:  # the integer is too large for a float
        return False
