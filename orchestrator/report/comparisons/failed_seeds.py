"""Bound the values that failed seeds could have had, by the declared range of the metric."""

import math
from collections.abc import Mapping
from statistics import fmean

from orchestrator.report.results.seed_results import (
    Pairs,
    SeedResults,
    ValueRange,
    difference_range,
    mean_by_seed,
)


def value_range(metric: str, results: SeedResults) -> ValueRange | None:
    """Return the smallest and the largest value of a metric; None unless both are declared."""
    declared = results.declaration(metric)
    return declared.span if not declared.high_from and all(map(math.isfinite, declared.span)) else None


def difference_bounds(pairs: Pairs, metric: str, results: SeedResults) -> dict[int, ValueRange] | None:
    """Return the bounds of the differences of all units in which a seed has no value.

    Args:
        pairs: Arm and reference, one pair for each context; differences are averaged over them.
        metric: A primary outcome.
        results: Results of the confirm trials.

    Returns:
        By seed, or by repeat, the smallest and the largest difference. None if a seed has no value and the
        metric has no declared range.
    """
    arms = {arm: mean_by_seed(results.by_seed(arm, metric)) for pair in pairs for arm in pair}
    seeds = set.intersection(*({*values, *results.failed_seeds(arm)} for arm, values in arms.items()))
    missing_seeds = {seed for seed in seeds if any(seed not in values for values in arms.values())}
    if not missing_seeds:
        return {}
    span = value_range(metric, results)
    if span is None:
        return None

    def value_bounds(arm: str, seed: int) -> ValueRange:
        return (arms[arm][seed],) * 2 if seed in arms[arm] else span

    by_seed = {
        seed: [
            difference_range(value_bounds(arm, seed), value_bounds(reference, seed))
            for arm, reference in pairs
        ]
        for seed in seeds
    }
    lows, highs = (
        results.by_unit({seed: fmean(ends[bound_index] for ends in spans) for seed, spans in by_seed.items()})
        for bound_index in (0, 1)
    )
    units = {results.unit_of(seed) for seed in missing_seeds}
    return {unit: (lows[unit], highs[unit]) for unit in sorted(units) if unit in lows}


def withheld_reason(bounds: Mapping[int, ValueRange] | None, metric: str, max_missing: int) -> str:
    """Return why failed seeds leave no verdict, as the end of a sentence."""
    if bounds is None:
        return f"; {metric} has no declared range"
    if len(bounds) > max_missing:
        return f"; a verdict for all their values needs at most {max_missing} without one"
    return f"; {'its value' if len(bounds) == 1 else 'their values'} could change the verdict"
