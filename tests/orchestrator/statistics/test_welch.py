"""Welch's interval, against SciPy's."""

import pytest
from scipy import stats

from orchestrator.statistics.welch import difference

FIRST, SECOND = [0.1, 0.4, 0.35, 0.2], [0.5, 0.9, 0.1, 0.7, 0.65, 0.8]


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_as_scipy_has_it(level):
    wanted = stats.ttest_ind(SECOND, FIRST, equal_var=False).confidence_interval(level)
    mean, low, high = difference(FIRST, SECOND, level)
    assert mean == pytest.approx(sum(SECOND) / 6 - sum(FIRST) / 4)
    assert (low, high) == (pytest.approx(wanted.low), pytest.approx(wanted.high))


def test_one_sample_may_not_vary():
    mean, low, high = difference([0.5, 0.5], [0.1, 0.3])
    wanted = stats.ttest_1samp([0.1, 0.3], 0.5).confidence_interval(0.95)
    assert (mean, low) == (pytest.approx(-0.3), pytest.approx(wanted.low - 0.5))
    assert high == pytest.approx(wanted.high - 0.5)


@pytest.mark.parametrize(("first", "second"), [([0.1], [0.2, 0.3]), ([0.5, 0.5], [0.7, 0.7])])
def test_what_tells_nothing_of_chance_has_no_interval(first, second):
    assert difference(first, second)[1:] == (None, None)


def test_no_values():
    with pytest.raises(ValueError, match="both samples must have values, got 0 and 2"):
        difference([], [0.1, 0.2])
