"""Expected best values agree with enumeration, hypervolumes with Optuna."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from orchestrator.statistics.search_quality import expected_best, hypervolume

VALUES = (0.3, 0.9, 0.9, 0.1, 0.5)


@pytest.mark.parametrize(("larger", "best_of"), [(True, max), (False, min)])
def test_expected_best_is_the_mean_over_all_draws(larger, best_of):
    for expected in expected_best(VALUES, [1, 2, 3, 4], larger=larger):
        outcomes = sorted(best_of(draw) for draw in product(VALUES, repeat=expected.draws))
        assert expected.mean == pytest.approx(fmean(outcomes))
        share_below = sum(outcome < expected.low for outcome in outcomes) / len(outcomes)
        share_above = sum(outcome > expected.high for outcome in outcomes) / len(outcomes)
        assert max(share_below, share_above) <= 0.1 + 1e-12
        assert expected.low <= expected.mean <= expected.high


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_hypervolume_matches_optuna(dimensions):
    points = np.random.default_rng(dimensions).uniform(-0.2, 1.0, size=(12, dimensions))
    volume = hypervolume([tuple(point) for point in points.tolist()], (0.0,) * dimensions)
    inside = points[(points > 0).all(axis=1)]
    optuna_volume = compute_hypervolume(-inside, np.zeros(dimensions)) if len(inside) else 0.0
    assert volume == pytest.approx(optuna_volume)


def test_hypervolume_of_simple_fronts():
    assert hypervolume([(1.0, 2.0), (2.0, 1.0)], (0.0, 0.0)) == 3.0
    assert hypervolume([(1.0, 0.0)], (0.0, 0.0)) == 0.0
    assert hypervolume([], (0.0, 0.0)) == 0.0
