"""The importance of dimensions matches the known function, and is unknown for unsuitable trials."""

import random

import pytest

from orchestrator.search import importance as module
from orchestrator.search.importance import estimate_importance
from search_spaces.dimensions import Choice, Dimension, Float, Int

SPACE = (
    Dimension("x", Float(0.001, 1.0, log=True)),
    Dimension("n", Int(1, 8)),
    Dimension("c", Choice((None, True, "word"))),
)


def make_trials(num_trials):
    rng = random.Random(0)
    assignments = [
        {"x": rng.uniform(0.001, 1), "n": rng.randint(1, 8), "c": rng.choice((None, True, "word"))}
        for _ in range(num_trials)
    ]
    return assignments, [assignment["n"] + 0.1 * assignment["x"] for assignment in assignments]


@pytest.mark.parametrize(("num_trials", "method"), [(40, "fANOVA"), (130, "mean decrease of impurity")])
def test_most_important_dimension_is_first_and_reproducible(num_trials, method):
    result = estimate_importance(SPACE, *make_trials(num_trials))
    assert (result.method, result.trials, next(iter(result.shares))) == (method, num_trials, "n")
    assert sum(result.shares.values()) == pytest.approx(1.0)
    assert estimate_importance(SPACE, *make_trials(num_trials)) == result


def test_importance_excludes_incomplete_and_constant_dimensions():
    assignments, values = make_trials(20)
    del assignments[3]["c"]
    result = estimate_importance(SPACE, assignments, values)
    assert set(result.shares) == {"x", "n"}
    constant_params = [{**assignment, "x": 0.5} for assignment in assignments]
    assert estimate_importance(SPACE, constant_params, values) is None


def test_few_or_equal_values_have_no_importance():
    assignments, values = make_trials(module.MIN_TRIALS - 1)
    assert estimate_importance(SPACE, assignments, values) is None
    assignments, values = make_trials(20)
    assert estimate_importance(SPACE, assignments, [1.0] * 20) is None
