"""Verdicts that hold for every possible value of failed seeds."""

import random

import pytest

from orchestrator.statistics.missing import MAX_MISSING_UNITS, verdict_despite_missing
from orchestrator.statistics.paired import PairedEstimate, estimate_differences
from orchestrator.statistics.verdicts import verdict

CLEAR_DIFFERENCES = (-0.51, -0.49, -0.52, -0.5, -0.48, -0.5, -0.53, -0.47)


def compare_values(values: dict[int, float], family: int = 1) -> PairedEstimate:
    return estimate_differences({("arm", "x"): values}, family=family)["arm", "x"]


def compare_with_missing(values, bounds, family=1, **options) -> PairedEstimate:
    known_values = dict(enumerate(values))
    return verdict_despite_missing(
        compare_values(known_values, family),
        bounds,
        lambda missing: compare_values({**known_values, **missing}, family),
        **options,
    )


def test_large_difference_holds_for_any_value_of_a_failed_seed():
    comparison = compare_with_missing(CLEAR_DIFFERENCES, {8: (-0.8, 0.2)})
    assert (comparison.num_missing, comparison.n) == (1, 8)
    result = verdict(comparison, num_failed=1, better="max")
    assert (result.kind, result.withheld) == ("worse", "")
    comparisons_at_bounds = [
        compare_values({**dict(enumerate(CLEAR_DIFFERENCES)), 8: value}) for value in (-0.8, 0.2)
    ]
    assert comparison.low == min(bound.low for bound in comparisons_at_bounds)
    assert comparison.high == max(bound.high for bound in comparisons_at_bounds)
    assert comparison.p == max(bound.p for bound in comparisons_at_bounds)


def test_small_difference_is_withheld_for_a_failed_seed():
    comparison = compare_with_missing([value / 10 for value in CLEAR_DIFFERENCES], {8: (-0.8, 0.2)})
    assert comparison.num_missing == 0
    assert verdict(comparison, num_failed=1).withheld


def test_no_difference_can_hold_for_any_value():
    values = (0.001, -0.002, 0.0, 0.001, -0.001, 0.002, -0.001, 0.0)
    result = verdict(compare_with_missing(values, {8: (-0.01, 0.01)}, margin=0.02), num_failed=1, margin=0.02)
    assert (result.kind, "0.02" in result.text) == ("no difference", True)


def test_many_missing_values_are_not_enumerated():
    values = dict.fromkeys(range(8, 9 + MAX_MISSING_UNITS), (-0.5, -0.5))
    assert compare_with_missing(CLEAR_DIFFERENCES, values).num_missing == 0
    values.popitem()
    assert compare_with_missing(CLEAR_DIFFERENCES, values).num_missing == MAX_MISSING_UNITS


@pytest.mark.parametrize("missing", [1, 3])
def test_verdict_at_bounds_holds_between_them(missing):
    rng, num_decided = random.Random(missing), 0
    for _ in range(300):
        mean, spread = rng.uniform(-1, 1), 10 ** rng.uniform(-2, 0)
        known_values = {seed: rng.gauss(mean, spread) for seed in range(rng.randint(3, 8))}
        bounds = {}
        for unit in range(8, 8 + missing):
            low = mean + rng.uniform(-2, 1) * spread
            bounds[unit] = (low, low + rng.uniform(0, 3) * spread)
        margin, family = rng.uniform(0.5, 3), rng.randint(1, 5)
        comparison = compare_with_missing(known_values.values(), bounds, family=family, margin=margin)
        if not comparison.num_missing:
            continue
        num_decided += 1
        kind = verdict(comparison, margin=margin).kind
        for _ in range(30):
            drawn_values = {unit: rng.uniform(*limits) for unit, limits in bounds.items()}
            complete_comparison = compare_values({**known_values, **drawn_values}, family)
            assert verdict(complete_comparison, margin=margin).kind == kind or kind == "no difference"
            assert comparison.low - 1e-12 <= complete_comparison.low
            assert complete_comparison.high <= comparison.high + 1e-12
            assert complete_comparison.p <= comparison.p + 1e-12 or kind == "no difference"
    assert num_decided > 20
