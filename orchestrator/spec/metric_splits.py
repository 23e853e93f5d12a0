"""Find the split of a metric, from the spec or from the metric's name."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainables.metrics import TEST, TRAIN, VALIDATION_SPLITS, metric_name, split_and_quantity

SELECTION_SPLIT = "valid"
"""Default split of an objective."""


def declared_split(metric: str, declared_split_name: str | None, test_splits: Collection[str]) -> str:
    """Return the split of a metric that is an objective or a primary outcome.

    Args:
        metric: Name of the metric.
        declared_split_name: The `split` of the metric in the spec, if any.
        test_splits: `confirm.splits` of the spec.

    Returns:
        `declared_split_name`; else the part of the name before its first slash, if it is a word for
        validation data, `train` or a test split; else `valid`.
    """
    if declared_split_name:
        return declared_split_name
    split, _ = split_and_quantity(metric)
    return split if split in {*VALIDATION_SPLITS, TRAIN, *test_splits} else SELECTION_SPLIT


def is_named_for_test_data(metric: str) -> bool:
    """Return whether the name of a metric begins with the word test, as `test/loss` and `test_loss` do."""
    return re.split(r"[^a-z]", metric.lower(), maxsplit=1)[0] == TEST


@dataclass(frozen=True)
class MetricSplits:
    """Split and quantity of every metric of a sweep."""

    declared: Mapping[str, str] = field(default_factory=dict)
    """Split by metric, for objectives and primary outcomes."""
    test: tuple[str, ...] = ()
    """`confirm.splits` of the spec."""

    def split(self, metric: str) -> str:
        """Return the split of `metric`; empty if neither the spec nor the name has one."""
        return self.declared.get(metric, split_and_quantity(metric)[0])

    def quantity(self, metric: str) -> str:
        """Return the name of the metric without its split, if the name begins with a split."""
        split, quantity = split_and_quantity(metric)
        return quantity if split == self.split(metric) else metric

    def name(self, split: str, quantity: str) -> str:
        """Return the name of the metric that measures `quantity` on `split`."""
        for metric in self.declared:
            if (self.split(metric), self.quantity(metric)) == (split, quantity):
                return metric
        return metric_name(split, quantity)

    @cached_property
    def selection(self) -> tuple[str, ...]:
        """Return the splits of validation data, which searches and training code use for selection."""
        chosen_splits = (*VALIDATION_SPLITS, *self.declared.values())
        return tuple(split for split in dict.fromkeys(chosen_splits) if split not in {TRAIN, *self.test})

    def is_selection(self, metric: str) -> bool:
        """Return whether `metric` is measured on validation data."""
        return self.split(metric) in self.selection

    def is_test(self, metric: str) -> bool:
        """Return whether `metric` is measured on test data, as stated by the spec or else by its name."""
        split = self.split(metric)
        return split in self.test or (metric not in self.declared and is_named_for_test_data(metric))


def outcome_split(metric: str, split: str | None, test_splits: Collection[str]) -> str:
    """Return the split of a primary outcome: a known split in its name, else `split`, else `valid`.

    An answer has one `split` for several outcomes, so a split in the name of an outcome takes precedence.
    """
    declared = declared_split(metric, None, test_splits)
    return declared if split_and_quantity(metric)[0] == declared else split or SELECTION_SPLIT
