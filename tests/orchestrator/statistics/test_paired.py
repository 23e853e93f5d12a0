"""Intervals and p of one family, against SciPy and by their own promise: they never disagree."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.statistics.paired import compare, p_without, resolution, subtract
from tests.orchestrator.statistics import studies

EIGHT = (0.011, 0.024, 0.017, 0.002, 0.031, 0.022, 0.009, 0.018)


def by_seed(values: tuple[float, ...] | list[float]) -> dict[int, float]:
    return {101 + place: value for place, value in enumerate(values)}


def test_one_comparison_is_the_paired_t_test() -> None:
    (found,) = compare({("arm", "iid/accuracy"): by_seed(EIGHT)}, family=1).values()
    theirs = stats.ttest_1samp(EIGHT, 0.0)
    interval = theirs.confidence_interval(0.95)
    assert found.n == 8
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)


def test_a_family_of_four_is_held_together_by_bonferroni() -> None:
    found = compare({("arm", "iid/accuracy"): by_seed(EIGHT)}, family=4)["arm", "iid/accuracy"]
    theirs = stats.ttest_1samp(EIGHT, 0.0)
    interval = theirs.confidence_interval(1 - 0.05 / 4)
    assert found.p == pytest.approx(4 * theirs.pvalue, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)


_values = st.lists(st.floats(-1, 1).map(lambda x: round(x, 2)), min_size=2, max_size=8)


@given(st.lists(_values, min_size=1, max_size=4), st.sampled_from([0.05, 0.001]), st.integers(0, 20))
def test_p_and_interval_never_disagree(arms: list[list[float]], level: float, more: int) -> None:
    given = {(str(place), "iid/accuracy"): by_seed(values) for place, values in enumerate(arms)}
    found = compare(given, family=len(arms) + more, level=level, resolutions={"iid/accuracy": 0.01})
    for each in found.values():
        assert each.p is not None
        assert each.low is not None
        assert each.high is not None
        assert each.p > 0
        assert (each.p <= level) == (each.low > 0 or each.high < 0) == each.shown


def test_at_the_very_edge_the_interval_decides() -> None:
    """Where the mean is exactly as far from 0 as the interval reaches, rounding must not part the two."""
    half = stats.t.isf(0.025, 3)
    for nudge in range(-3, 4):
        mean = half / 2
        for _ in range(abs(nudge)):
            mean = math.nextafter(mean, math.inf if nudge > 0 else 0.0)
        spread = math.sqrt(3 / 4)
        values = [mean + spread, mean - spread, mean + spread, mean - spread]
        (found,) = compare({("arm", "x"): by_seed(values)}, family=1).values()
        assert found.low is not None
        assert found.p is not None
        assert (found.low > 0) == (found.p <= 0.05)


def test_equal_differences_of_a_coarse_accuracy_prove_nothing_without_error() -> None:
    accuracies = {"baseline": [0.90, 0.92, 0.94], "arm": [0.92, 0.94, 0.96]}
    step = resolution(value for values in accuracies.values() for value in values)
    assert step == pytest.approx(0.02)
    pairs = [after - before for before, after in zip(*accuracies.values(), strict=True)]
    (found,) = compare({("arm", "x"): by_seed(pairs)}, family=1, resolutions={"x": step}).values()
    assert found.raised
    assert found.spread == pytest.approx(0.02 / math.sqrt(6))
    assert found.p is not None
    assert 0.05 < found.p < 0.06


def test_without_any_step_equal_differences_have_no_interval() -> None:
    (found,) = compare({("arm", "x"): by_seed([0.5, 0.5, 0.5])}, family=1).values()
    assert (found.mean, found.low, found.high, found.p, found.shown) == (0.5, None, None, None, False)


def test_one_seed_has_no_interval() -> None:
    (found,) = compare({("arm", "x"): {101: 0.5}}, family=1, resolutions={"x": 0.1}).values()
    assert (found.n, found.mean, found.p) == (1, 0.5, None)


def test_a_spread_far_below_that_of_other_arms_is_raised_to_half_their_median() -> None:
    spreads = {"tight": 0.001, "one": 0.1, "two": 0.2, "wild": 50.0}
    given = {(arm, "x"): by_seed([0.3 - size, 0.3, 0.3 + size]) for arm, size in spreads.items()}
    found = compare({**given, ("tight", "y"): by_seed([0.299, 0.3, 0.301])}, family=5)
    assert found["tight", "x"].spread == pytest.approx(0.05)
    assert found["tight", "x"].raised
    assert [found[arm, "x"].spread for arm in ("one", "two", "wild")] == pytest.approx([0.1, 0.2, 50.0])
    assert found["tight", "y"].spread == pytest.approx(0.001), "another outcome has units of its own"


def test_arms_may_have_other_seeds_and_none() -> None:
    found = compare(
        {("a", "x"): {1: 0.1, 2: 0.3, 5: 0.2}, ("b", "x"): {}, ("c", "x"): {1: 0.5, 2: 0.1}}, family=3
    )
    assert {arm: each.n for (arm, _), each in found.items()} == {"a": 3, "c": 2}


def test_invalid_family_or_level_is_an_error() -> None:
    pair = {("a", "x"): {1: 0.1, 2: 0.2}, ("b", "x"): {1: 0.1, 2: 0.2}}
    with pytest.raises(ValueError, match="hold all comparisons, got family=1 for 2"):
        compare(pair, family=1)
    with pytest.raises(ValueError, match="between 0 and 1, got level=5"):
        compare(pair, family=2, level=5)


def test_steps_are_found_among_rounding_errors() -> None:
    assert resolution([0.1 + 0.2, 0.3, 0.5, 0.9]) == pytest.approx(0.2)
    assert resolution([0.5, 0.5]) == resolution([]) == 0.0


def test_an_arm_that_exploded_takes_no_claim_from_the_others() -> None:
    values = {
        "baseline": [0.51, 0.49, 0.50],
        "arm": [0.31, 0.29, 0.302],
        "exploded": [1.3e12, 1.0e12, 1.9e12],
    }
    step = resolution(value for each in values.values() for value in each)
    assert step == pytest.approx(0.008)
    given = {
        (arm, "loss"): by_seed(
            [subtract(*pair) for pair in zip(values[arm], values["baseline"], strict=True)]
        )
        for arm in ("arm", "exploded")
    }
    found = compare(given, family=2, resolutions={"loss": step})
    assert found["arm", "loss"].shown
    assert found["arm", "loss"].high == pytest.approx(-0.2, abs=0.05)


def test_leaving_one_out_is_the_t_test_of_the_others() -> None:
    (found,) = compare({("arm", "x"): by_seed(EIGHT)}, family=4).values()
    assert p_without(found, 104) == pytest.approx(stats.ttest_1samp((*EIGHT[:3], *EIGHT[4:]), 0.0).pvalue)
    (two,) = compare({("arm", "x"): by_seed(EIGHT[:2])}, family=1).values()
    assert p_without(two, 101) is None


@pytest.mark.parametrize("kind", [studies.normal, studies.coarse, studies.bimodal])
def test_the_simulated_procedure_is_this_one(kind: object) -> None:
    """What the studies reject, vectorised, is what `compare` shows."""
    assert kind in studies.KINDS
    chosen = studies.KINDS[studies.KINDS.index(kind)]
    found = studies.differences(chosen(np.random.default_rng(3), (40, 5, 4)))
    found[:, :, 0] += 2 * found.std()
    step = studies.RESOLUTION.get(chosen, 0.0)
    vectorised = studies.rejected(found, step)
    for study, expected in zip(found, vectorised, strict=True):
        given = {(str(arm), "x"): by_seed(list(study[:, arm])) for arm in range(3)}
        ours = compare(given, family=3, resolutions={"x": step})
        assert [ours[str(arm), "x"].shown for arm in range(3)] == list(expected)


@pytest.mark.parametrize("scale", [1e-13, 1.0, 1e9])
def test_rounding_errors_are_no_difference(scale: float) -> None:
    assert subtract(scale * (0.1 + 0.2), scale * 0.3) == 0.0
    assert subtract(0.3 * scale, 0.3 * scale * (1 + 1e-9)) == pytest.approx(-3e-10 * scale, rel=1e-6)
