"""Verdicts that hold for every value of failed seeds."""

import random

import pytest

from orchestrator.statistics.missing import MOST_MISSING, verdict_despite_missing
from orchestrator.statistics.paired import PairedEstimate, compare
from orchestrator.statistics.verdicts import verdict

CLEAR = (-0.51, -0.49, -0.52, -0.5, -0.48, -0.5, -0.53, -0.47)


def compared(values: dict[int, float], family: int = 1) -> PairedEstimate:
    return compare({("arm", "x"): values}, family=family)["arm", "x"]


def settle(values, bounds, family=1, **goal) -> PairedEstimate:
    known = dict(enumerate(values))
    return verdict_despite_missing(
        compared(known, family), bounds, lambda given: compared({**known, **given}, family), **goal
    )


def test_a_large_difference_stands_whatever_the_failed_seed_had_measured():
    found = settle(CLEAR, {8: (-0.8, 0.2)})
    assert (found.missing, found.n) == (1, 8)
    said = verdict(found, num_failed=1, better="max")
    assert (said.kind, said.text) == ("worse", "worse, for any value of 1 failed seed")
    ends = [compared({**dict(enumerate(CLEAR)), 8: value}) for value in (-0.8, 0.2)]
    assert found.low == min(each.low for each in ends)
    assert found.high == max(each.high for each in ends)
    assert found.p == max(each.p for each in ends)


def test_a_difference_that_one_value_could_undo_does_not():
    found = settle([value / 10 for value in CLEAR], {8: (-0.8, 0.2)})
    assert found.missing == 0
    assert verdict(found, num_failed=1).withheld


def test_no_difference_can_hold_too():
    values = (0.001, -0.002, 0.0, 0.001, -0.001, 0.002, -0.001, 0.0)
    said = verdict(settle(values, {8: (-0.01, 0.01)}, margin=0.02), num_failed=1, margin=0.02)
    assert said.text == "no difference larger than 0.02, for any value of 1 failed seed"


def test_many_missing_values_are_not_tried():
    values = dict.fromkeys(range(8, 9 + MOST_MISSING), (-0.5, -0.5))
    assert settle(CLEAR, values).missing == 0
    values.popitem()
    assert settle(CLEAR, values).missing == MOST_MISSING


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_verdict_at_bounds_holds_between_them(missing):
    stream, held = random.Random(missing), 0
    for _ in range(300):
        mean, spread = stream.uniform(-1, 1), 10 ** stream.uniform(-2, 0)
        known = {seed: stream.gauss(mean, spread) for seed in range(stream.randint(3, 8))}
        bounds = {}
        for unit in range(8, 8 + missing):
            low = mean + stream.uniform(-2, 1) * spread
            bounds[unit] = (low, low + stream.uniform(0, 3) * spread)
        margin, family = stream.uniform(0.5, 3), stream.randint(1, 5)
        found = settle(known.values(), bounds, family=family, margin=margin)
        if not found.missing:
            continue
        held += 1
        kind = verdict(found, margin=margin).kind
        for _ in range(30):
            given = {unit: stream.uniform(*ends) for unit, ends in bounds.items()}
            whole = compared({**known, **given}, family)
            assert verdict(whole, margin=margin).kind == kind or kind == "no difference"
            assert found.low - 1e-12 <= whole.low
            assert whole.high <= found.high + 1e-12
            assert whole.p <= found.p + 1e-12 or kind == "no difference"
    assert held > 20
