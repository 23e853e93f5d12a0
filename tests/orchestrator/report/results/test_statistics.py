"""Intervals and tests agree with closed forms, with SciPy and with enumeration."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.report.results.statistics import estimate, sign_flip_p, welch_difference, win_share

value_lists = st.lists(
    st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 3)), min_size=2, max_size=7
)


def test_interval_is_students_t() -> None:
    result = estimate([1.0, 2.0, 3.0, 4.0])
    half_width = 3.182446305284263 * math.sqrt(5 / 3) / 2  # t table: 97.5%, 3 degrees of freedom
    assert result.mean == 2.5
    assert result.low == pytest.approx(2.5 - half_width, rel=1e-12)
    assert result.high == pytest.approx(2.5 + half_width, rel=1e-12)


def test_values_equal_up_to_rounding_have_no_interval() -> None:
    result = estimate([0.1 + 0.2, 0.3, 0.3])
    assert (result.n, result.low, result.high) == (3, None, None)
    mean, *ends = welch_difference([0.1 + 0.2, 0.3], [0.3, 0.3])
    assert (mean, ends) == (0.0, [None, None])


def test_interval_is_clipped_to_the_range_of_the_quantity() -> None:
    unclipped, clipped = estimate([0.9, 1.0]), estimate([0.9, 1.0], span=(0.0, 1.0))
    assert unclipped.low is not None
    assert unclipped.high is not None
    assert unclipped.low < 0.95 < 1.0 < unclipped.high
    assert (clipped.mean, clipped.low, clipped.high) == (unclipped.mean, unclipped.low, 1.0)
    assert estimate([0.0, 0.1], span=(0.0, 1.0)).low == 0.0


@given(value_lists)
def test_sign_flip_counts_all_flips(differences: list[float]) -> None:
    observed = abs(math.fsum(differences))
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [
        abs(math.fsum(sign * difference for sign, difference in zip(flip, differences, strict=True)))
        for flip in flips
    ]
    expected = sum(sum_of_flip >= observed - 1e-9 for sum_of_flip in sums) / len(flips)
    assert sign_flip_p(differences) == pytest.approx(expected, abs=1e-9)


FIRST_SAMPLE, SECOND_SAMPLE = [0.1, 0.4, 0.35, 0.2], [0.5, 0.9, 0.1, 0.7, 0.65, 0.8]


@pytest.mark.parametrize("level", [0.95, 0.999])
def test_difference_of_means_matches_scipy(level):
    expected = stats.ttest_ind(SECOND_SAMPLE, FIRST_SAMPLE, equal_var=False).confidence_interval(level)
    mean, low, high = welch_difference(FIRST_SAMPLE, SECOND_SAMPLE, level)
    assert mean == pytest.approx(sum(SECOND_SAMPLE) / 6 - sum(FIRST_SAMPLE) / 4)
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_difference_of_means_accepts_one_constant_sample():
    mean, low, high = welch_difference([0.5, 0.5], [0.1, 0.3])
    expected = stats.ttest_1samp([0.1, 0.3], 0.5).confidence_interval(0.95)
    assert (mean, low) == (pytest.approx(-0.3), pytest.approx(expected.low - 0.5))
    assert high == pytest.approx(expected.high - 0.5)


@pytest.mark.parametrize("goal", ["max", "min", None])
def test_win_share_counts_ties_as_half_wins(goal):
    sign = -1.0 if goal == "min" else 1.0
    result = win_share(
        [sign * difference for difference in (0.1, 0.2, 0.3, 0.1, -0.1, 0.0)], goal, has_interval=True
    )
    assert (result.wins, result.ties, result.n, result.better) == (4, 1, 6, goal)
    assert result.share == pytest.approx(4.5 / 6)
    assert result.low == pytest.approx(stats.binomtest(4, 6).proportion_ci(0.95).low)
    assert result.high == pytest.approx(stats.binomtest(5, 6).proportion_ci(0.95).high)
