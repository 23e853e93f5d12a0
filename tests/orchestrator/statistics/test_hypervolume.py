"""Volumes against Optuna's, and by hand."""

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from orchestrator.statistics.hypervolume import hypervolume


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_it_is_what_optuna_finds(dimensions):
    points = np.random.default_rng(dimensions).uniform(-0.2, 1.0, size=(12, dimensions))
    ours = hypervolume([tuple(each) for each in points.tolist()], (0.0,) * dimensions)
    inside = points[(points > 0).all(axis=1)]
    theirs = compute_hypervolume(-inside, np.zeros(dimensions)) if len(inside) else 0.0
    assert ours == pytest.approx(theirs)


def test_by_hand():
    assert hypervolume([(1.0, 2.0), (2.0, 1.0)], (0.0, 0.0)) == 3.0
    assert hypervolume([(1.0, 0.0)], (0.0, 0.0)) == 0.0
    assert hypervolume([], (0.0, 0.0)) == 0.0
