"""Intervals and p-values of one family agree with SciPy and with each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.statistics.paired import estimate_differences, p_without_seed, resolution, subtract
from tests.orchestrator.statistics import studies

EIGHT_DIFFERENCES = (0.011, 0.024, 0.017, 0.002, 0.031, 0.022, 0.009, 0.018)


def key_by_seed(values: tuple[float, ...] | list[float]) -> dict[int, float]:
    return {101 + index: value for index, value in enumerate(values)}


@pytest.mark.parametrize("family", [1, 4])
def test_comparison_is_the_paired_t_test_with_bonferroni(family: int) -> None:
    (comparison,) = estimate_differences(
        {("arm", "iid/accuracy"): key_by_seed(EIGHT_DIFFERENCES)}, family=family
    ).values()
    scipy_result = stats.ttest_1samp(EIGHT_DIFFERENCES, 0.0)
    interval = scipy_result.confidence_interval(1 - 0.05 / family)
    assert comparison.n == 8
    assert comparison.p == pytest.approx(family * scipy_result.pvalue, rel=1e-12)
    assert (comparison.low, comparison.high) == pytest.approx((interval.low, interval.high), rel=1e-12)


_value_lists = st.lists(st.floats(-1, 1).map(lambda x: round(x, 2)), min_size=2, max_size=8)


@given(st.lists(_value_lists, min_size=1, max_size=4), st.sampled_from([0.05, 0.001]), st.integers(0, 20))
def test_p_and_interval_never_disagree(arms: list[list[float]], level: float, num_other: int) -> None:
    differences = {(str(index), "iid/accuracy"): key_by_seed(values) for index, values in enumerate(arms)}
    comparisons = estimate_differences(
        differences, family=len(arms) + num_other, level=level, resolutions={"iid/accuracy": 0.01}
    )
    for interval in comparisons.values():
        assert interval.p is not None
        assert interval.low is not None
        assert interval.high is not None
        assert interval.p > 0
        assert (interval.p <= level) == (interval.low > 0 or interval.high < 0) == interval.excludes_zero


def test_interval_and_p_agree_at_the_edge() -> None:
    """Rounding must not separate interval and p if the interval ends at 0."""
    critical_value = stats.t.isf(0.025, 3)
    for num_steps in range(-3, 4):
        mean = critical_value / 2
        for _ in range(abs(num_steps)):
            mean = math.nextafter(mean, math.inf if num_steps > 0 else 0.0)
        spread = math.sqrt(3 / 4)
        values = [mean + spread, mean - spread, mean + spread, mean - spread]
        (comparison,) = estimate_differences({("arm", "x"): key_by_seed(values)}, family=1).values()
        assert comparison.low is not None
        assert comparison.p is not None
        assert (comparison.low > 0) == (comparison.p <= 0.05)


def test_equal_differences_of_a_coarse_accuracy_are_not_significant() -> None:
    accuracies = {"baseline": [0.90, 0.92, 0.94], "arm": [0.92, 0.94, 0.96]}
    step = resolution(value for values in accuracies.values() for value in values)
    assert step == pytest.approx(0.02)
    differences = [arm - baseline for baseline, arm in zip(*accuracies.values(), strict=True)]
    (comparison,) = estimate_differences(
        {("arm", "x"): key_by_seed(differences)}, family=1, resolutions={"x": step}
    ).values()
    assert comparison.is_spread_bounded
    assert comparison.spread == pytest.approx(0.02 / math.sqrt(6))
    assert comparison.p is not None
    assert 0.05 < comparison.p < 0.06


def test_equal_differences_without_a_resolution_have_no_interval() -> None:
    (comparison,) = estimate_differences({("arm", "x"): key_by_seed([0.5, 0.5, 0.5])}, family=1).values()
    assert (comparison.mean, comparison.low, comparison.high, comparison.p, comparison.excludes_zero) == (
        0.5,
        None,
        None,
        None,
        False,
    )


def test_small_spread_is_raised_to_half_the_median() -> None:
    spreads = {"tight": 0.001, "one": 0.1, "two": 0.2, "wild": 50.0}
    differences = {(arm, "x"): key_by_seed([0.3 - step, 0.3, 0.3 + step]) for arm, step in spreads.items()}
    comparisons = estimate_differences(
        {**differences, ("tight", "y"): key_by_seed([0.299, 0.3, 0.301])}, family=5
    )
    assert comparisons["tight", "x"].spread == pytest.approx(0.05)
    assert comparisons["tight", "x"].is_spread_bounded
    assert [comparisons[arm, "x"].spread for arm in ("one", "two", "wild")] == pytest.approx([0.1, 0.2, 50.0])
    assert comparisons["tight", "y"].spread == pytest.approx(0.001), "another outcome has other units"


def test_invalid_family_or_level_is_an_error() -> None:
    pair = {("a", "x"): {1: 0.1, 2: 0.2}, ("b", "x"): {1: 0.1, 2: 0.2}}
    with pytest.raises(ValueError, match=r"family=1 .*2"):
        estimate_differences(pair, family=1)
    with pytest.raises(ValueError, match="level=5"):
        estimate_differences(pair, family=2, level=5)


def test_resolution_ignores_rounding_errors() -> None:
    assert resolution([0.1 + 0.2, 0.3, 0.5, 0.9]) == pytest.approx(0.2)
    assert resolution([0.5, 0.5]) == resolution([]) == 0.0


def test_p_without_one_seed_is_the_t_test_of_the_others() -> None:
    (comparison,) = estimate_differences({("arm", "x"): key_by_seed(EIGHT_DIFFERENCES)}, family=4).values()
    assert p_without_seed(comparison, 104) == pytest.approx(
        stats.ttest_1samp((*EIGHT_DIFFERENCES[:3], *EIGHT_DIFFERENCES[4:]), 0.0).pvalue
    )
    (two_seed_comparison,) = estimate_differences(
        {("arm", "x"): key_by_seed(EIGHT_DIFFERENCES[:2])}, family=1
    ).values()
    assert p_without_seed(two_seed_comparison, 101) is None


@pytest.mark.parametrize("sampler", [studies.sample_normal, studies.sample_coarse])
def test_simulation_matches_estimate_differences(sampler: studies.Sampler) -> None:
    """The vectorised rejections of the studies equal those of `estimate_differences`."""
    study_differences = studies.paired_differences(sampler(np.random.default_rng(3), (40, 5, 4)))
    study_differences[:, :, 0] += 2 * study_differences.std()
    step = studies.RESOLUTION.get(sampler, 0.0)
    is_rejected = studies.interval_rejections(study_differences, step)
    for study, expected in zip(study_differences, is_rejected, strict=True):
        differences = {(str(arm), "x"): key_by_seed(list(study[:, arm])) for arm in range(3)}
        comparisons = estimate_differences(differences, family=3, resolutions={"x": step})
        assert [comparisons[str(arm), "x"].excludes_zero for arm in range(3)] == list(expected)


@pytest.mark.parametrize("scale", [1e-13, 1.0, 1e9])
def test_rounding_errors_are_no_difference(scale: float) -> None:
    assert subtract(scale * (0.1 + 0.2), scale * 0.3) == 0.0
    assert subtract(0.3 * scale, 0.3 * scale * (1 + 1e-9)) == pytest.approx(-3e-10 * scale, rel=1e-6)
