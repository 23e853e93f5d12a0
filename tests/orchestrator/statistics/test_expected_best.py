"""The closed form against every draw there is."""

from itertools import product
from statistics import fmean

import pytest

from orchestrator.statistics.expected_best import expected_best

VALUES = (0.3, 0.9, 0.9, 0.1, 0.5)


@pytest.mark.parametrize(("larger", "best"), [(True, max), (False, min)])
def test_it_is_the_mean_over_all_draws(larger, best):
    for found in expected_best(VALUES, [1, 2, 3, 4], larger=larger):
        outcomes = sorted(best(each) for each in product(VALUES, repeat=found.draws))
        assert found.mean == pytest.approx(fmean(outcomes))
        below = sum(each < found.low for each in outcomes) / len(outcomes)
        above = sum(each > found.high for each in outcomes) / len(outcomes)
        assert max(below, above) <= 0.1 + 1e-12
        assert found.low <= found.mean <= found.high


def test_one_value_is_all_there_is():
    (found,) = expected_best([0.4], [7], larger=True)
    assert (found.mean, found.low, found.high) == (0.4, 0.4, 0.4)


def test_many_draws_find_the_best():
    (found,) = expected_best(VALUES, [200], larger=True)
    assert found.mean == pytest.approx(0.9)


def test_no_values():
    with pytest.raises(ValueError, match="an expected best needs at least one value, got"):
        expected_best([], [1], larger=True)
