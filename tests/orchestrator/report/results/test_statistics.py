"""Intervals and tests against closed forms, SciPy's, and counting by hand."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.report.results.statistics import estimate, sign_flip_p, welch_difference, win_share

values = st.lists(
    st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 3)), min_size=2, max_size=7
)


def test_interval_is_students_t() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0])
    half = 3.182446305284263 * math.sqrt(5 / 3) / 2  # t table: 97.5%, 3 degrees of freedom
    assert found.mean == 2.5
    assert found.low == pytest.approx(2.5 - half, rel=1e-12)
    assert found.high == pytest.approx(2.5 + half, rel=1e-12)


def test_values_that_are_all_the_same_have_no_interval() -> None:
    found = estimate([0.25] * 3)
    assert (found.n, found.mean, found.low, found.high) == (3, 0.25, None, None)


def test_values_equal_up_to_rounding_have_no_interval() -> None:
    found = estimate([0.1 + 0.2, 0.3, 0.3])
    assert (found.n, found.low, found.high) == (3, None, None)
    mean, *ends = welch_difference([0.1 + 0.2, 0.3], [0.3, 0.3])
    assert (mean, ends) == (0.0, [None, None])


def test_an_interval_ends_where_the_quantity_does() -> None:
    free, cut = estimate([0.9, 1.0]), estimate([0.9, 1.0], span=(0.0, 1.0))
    assert free.low is not None
    assert free.high is not None
    assert free.low < 0.95 < 1.0 < free.high
    assert (cut.mean, cut.low, cut.high) == (free.mean, free.low, 1.0)
    assert estimate([0.0, 0.1], span=(0.0, 1.0)).low == 0.0


def test_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        estimate([])


@given(values)
def test_sign_flip_counts_all_flips(differences: list[float]) -> None:
    observed = abs(math.fsum(differences))
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(math.fsum(sign * d for sign, d in zip(flip, differences, strict=True))) for flip in flips]
    by_hand = sum(total >= observed - 1e-9 for total in sums) / len(flips)
    assert sign_flip_p(differences) == pytest.approx(by_hand, abs=1e-9)


FIRST, SECOND = [0.1, 0.4, 0.35, 0.2], [0.5, 0.9, 0.1, 0.7, 0.65, 0.8]


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_a_difference_of_means_is_as_scipy_has_it(level):
    wanted = stats.ttest_ind(SECOND, FIRST, equal_var=False).confidence_interval(level)
    mean, low, high = welch_difference(FIRST, SECOND, level)
    assert mean == pytest.approx(sum(SECOND) / 6 - sum(FIRST) / 4)
    assert (low, high) == (pytest.approx(wanted.low), pytest.approx(wanted.high))


def test_one_sample_may_not_vary():
    mean, low, high = welch_difference([0.5, 0.5], [0.1, 0.3])
    wanted = stats.ttest_1samp([0.1, 0.3], 0.5).confidence_interval(0.95)
    assert (mean, low) == (pytest.approx(-0.3), pytest.approx(wanted.low - 0.5))
    assert high == pytest.approx(wanted.high - 0.5)


@pytest.mark.parametrize(("first", "second"), [([0.1], [0.2, 0.3]), ([0.5, 0.5], [0.7, 0.7])])
def test_constant_samples_have_no_interval(first, second):
    assert welch_difference(first, second)[1:] == (None, None)


def test_a_difference_of_means_without_values_is_refused():
    with pytest.raises(ValueError, match="both samples must have values, got 0 and 2"):
        welch_difference([], [0.1, 0.2])


@pytest.mark.parametrize("goal", ["max", "min", None])
def test_the_share_of_wins_counts_ties_half_and_its_interval_covers_both_sides_of_them(goal):
    sign = -1.0 if goal == "min" else 1.0
    found = win_share([sign * each for each in (0.1, 0.2, 0.3, 0.1, -0.1, 0.0)], goal, has_interval=True)
    assert (found.wins, found.ties, found.n, found.better) == (4, 1, 6, goal)
    assert found.share == pytest.approx(4.5 / 6)
    assert found.low == pytest.approx(stats.binomtest(4, 6).proportion_ci(0.95).low)
    assert found.high == pytest.approx(stats.binomtest(5, 6).proportion_ci(0.95).high)


def test_win_share_without_chance_has_no_interval():
    found = win_share([0.5], "max", has_interval=False)
    assert (found.share, found.low, found.high) == (1.0, None, None)
