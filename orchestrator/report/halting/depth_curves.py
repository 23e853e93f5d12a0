"""Compute the depth of arms by split: mean over seeds, and spread over the examples of a split."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from orchestrator.plan.types import Plan
from orchestrator.report.results.seed_results import SeedResults

PERCENTILE_SUFFIXES = ("_p10", "_p90")
"""Suffixes of the 10th and 90th percentile over examples."""


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """Depth of one arm on the splits of its confirm trials, in their order."""

    arm: str
    quantity: str
    splits: tuple[str, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    """10th percentile over the examples of each split, averaged over seeds; `mean` if not measured."""
    high: tuple[float, ...]
    seeds: int

    @property
    def varies(self) -> bool:
        """Return whether the depth varies, which means that something halts."""
        return len({*self.mean, *self.low, *self.high}) > 1


def depth_curves(plan: Plan, results: SeedResults, splits: Sequence[str]) -> Iterator[DepthCurve]:
    """Yield a curve for every arm and every quantity that counts executed parts of a model that halts."""
    costs = (metric for metric in results.declared_metrics if metric.is_cost and metric.shown)
    depth_quantities = [metric.name for metric in costs if metric.moves_with]
    for quantity, arm in product(depth_quantities, plan.arms):
        measured_splits = tuple(split for split in splits if results.by_seed(arm.name, f"{split}/{quantity}"))
        if measured_splits:
            mean, low, high = (
                tuple(_mean_over_seeds(results, arm.name, split, quantity, part) for split in measured_splits)
                for part in ("", *PERCENTILE_SUFFIXES)
            )
            seeds = {seed for _, seed in results.by_seed(arm.name, f"{measured_splits[0]}/{quantity}")}
            yield DepthCurve(arm.name, quantity, measured_splits, mean, low, high, len(seeds))


def _mean_over_seeds(results: SeedResults, arm: str, split: str, quantity: str, suffix: str) -> float:
    values = results.by_seed(arm, f"{split}/{quantity}{suffix}") or results.by_seed(
        arm, f"{split}/{quantity}"
    )
    return fmean(value for value, _ in values.values())
