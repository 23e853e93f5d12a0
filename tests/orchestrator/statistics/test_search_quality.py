"""The expected best against every draw there is; volumes against Optuna's, and by hand."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from orchestrator.statistics.search_quality import expected_best, hypervolume

VALUES = (0.3, 0.9, 0.9, 0.1, 0.5)


@pytest.mark.parametrize(("larger", "best"), [(True, max), (False, min)])
def test_the_expected_best_is_the_mean_over_all_draws(larger, best):
    for found in expected_best(VALUES, [1, 2, 3, 4], larger=larger):
        outcomes = sorted(best(each) for each in product(VALUES, repeat=found.draws))
        assert found.mean == pytest.approx(fmean(outcomes))
        below = sum(outcome < found.low for outcome in outcomes) / len(outcomes)
        above = sum(outcome > found.high for outcome in outcomes) / len(outcomes)
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


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_a_volume_is_what_optuna_finds(dimensions):
    points = np.random.default_rng(dimensions).uniform(-0.2, 1.0, size=(12, dimensions))
    ours = hypervolume([tuple(each) for each in points.tolist()], (0.0,) * dimensions)
    inside = points[(points > 0).all(axis=1)]
    theirs = compute_hypervolume(-inside, np.zeros(dimensions)) if len(inside) else 0.0
    assert ours == pytest.approx(theirs)


def test_volumes_by_hand():
    assert hypervolume([(1.0, 2.0), (2.0, 1.0)], (0.0, 0.0)) == 3.0
    assert hypervolume([(1.0, 0.0)], (0.0, 0.0)) == 0.0
    assert hypervolume([], (0.0, 0.0)) == 0.0
