"""Which data a metric is measured on: as the spec declares it, else as the metric's name says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainables.metrics import TRAIN, VALIDATION_SPLITS, metric_name, split_and_quantity

SELECTION_SPLIT = "valid"
"""Split of an objective that neither declares one nor begins with the name of one."""


def declared_split(metric: str, given: str | None, test_splits: Collection[str]) -> str:
    """Find the split of a metric that is an objective or a primary outcome.

    Args:
        metric: Name of the metric.
        given: The `split` that stands beside the metric in the spec, if any.
        test_splits: `confirm.splits` of the spec.

    Returns:
        `given`; else what stands before the first slash of the name, if that is a word for validation data,
        `train` or a test split; else `valid`.
    """
    if given:
        return given
    split, _ = split_and_quantity(metric)
    return split if split in {*VALIDATION_SPLITS, TRAIN, *test_splits} else SELECTION_SPLIT


@dataclass(frozen=True)
class MetricSplits:
    """Split and quantity of every metric of a sweep."""

    declared: Mapping[str, str] = field(default_factory=dict)
    """Split by metric: of objectives and primary outcomes."""
    test: tuple[str, ...] = ()
    """`confirm.splits` of the spec."""

    def split(self, metric: str) -> str:
        """Split of `metric`; empty where neither the spec nor the name has one."""
        return self.declared.get(metric, split_and_quantity(metric)[0])

    def quantity(self, metric: str) -> str:
        """`metric` without its split: the whole name where the name does not begin with the split."""
        split, quantity = split_and_quantity(metric)
        return quantity if split == self.split(metric) else metric

    def name(self, split: str, quantity: str) -> str:
        """Name of the metric that measures `quantity` on `split`."""
        for metric in self.declared:
            if (self.split(metric), self.quantity(metric)) == (split, quantity):
                return metric
        return metric_name(split, quantity)

    @cached_property
    def selection(self) -> tuple[str, ...]:
        """Splits of validation data, by which searches and training code choose."""
        chosen = (*VALIDATION_SPLITS, *self.declared.values())
        return tuple(each for each in dict.fromkeys(chosen) if each not in {TRAIN, *self.test})

    def is_selection(self, metric: str) -> bool:
        """Whether `metric` is measured on validation data."""
        return self.split(metric) in self.selection


def outcome_split(metric: str, given: str | None, test_splits: Collection[str]) -> str:
    """Find the split of a primary outcome: that of its name if known, else `given`, else `valid`.

    One `split` of an answer stands beside several outcomes, so a name that begins with a split keeps it.
    """
    named = declared_split(metric, None, test_splits)
    return named if split_and_quantity(metric)[0] == named else given or SELECTION_SPLIT
