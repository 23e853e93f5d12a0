"""Which dimension mattered is found where it is known, and nothing is said where nothing can be."""

import random

import pytest

from orchestrator.search import importance as module
from orchestrator.search.importance import importance
from search_spaces.dimensions import Choice, Dimension, Float, Int

SPACE = (
    Dimension("x", Float(0.001, 1.0, log=True)),
    Dimension("n", Int(1, 8)),
    Dimension("c", Choice((None, True, "word"))),
)


def tried(trials):
    stream = random.Random(0)
    assignments = [
        {"x": stream.uniform(0.001, 1), "n": stream.randint(1, 8), "c": stream.choice((None, True, "word"))}
        for _ in range(trials)
    ]
    return assignments, [assignment["n"] + 0.1 * assignment["x"] for assignment in assignments]


@pytest.mark.parametrize(("trials", "method"), [(40, "fANOVA"), (130, "mean decrease of impurity")])
def test_what_decides_comes_first_and_the_same_again(trials, method):
    found = importance(SPACE, *tried(trials))
    assert found is not None
    assert (found.method, found.trials, next(iter(found.shares))) == (method, trials, "n")
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert importance(SPACE, *tried(trials)) == found


def test_dimensions_that_some_trials_lack_or_that_never_vary_are_left_out():
    assignments, values = tried(20)
    del assignments[3]["c"]
    found = importance(SPACE, assignments, values)
    assert found is not None
    assert set(found.shares) == {"x", "n"}
    still = [{**assignment, "x": 0.5} for assignment in assignments]
    assert importance(SPACE, still, values) is None


def test_nothing_is_said_of_few_or_equal_values():
    assignments, values = tried(module.TRIALS_LEAST - 1)
    assert importance(SPACE, assignments, values) is None
    assignments, values = tried(20)
    assert importance(SPACE, assignments, [1.0] * 20) is None
