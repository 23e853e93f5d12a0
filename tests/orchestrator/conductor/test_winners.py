from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.winners import Candidate, rank_candidates
from orchestrator.spec.section import Objective

MAX_OBJECTIVE, MIN_OBJECTIVE = (
    Objective(metric="valid/a", goal="max"),
    Objective(metric="valid/b", goal="min"),
)


def make_candidates(*values):
    return [Candidate(number, {"x": number}, tuple(scores)) for number, scores in enumerate(values)]


def ordered_values(trials):
    return [trial.assignment["x"] for trial in trials]


def test_goal_decides_the_order():
    candidates = make_candidates([1.0], [3.0], [2.0])
    assert ordered_values(rank_candidates(candidates, [MAX_OBJECTIVE])) == [1, 2, 0]
    assert ordered_values(rank_candidates(candidates, [MIN_OBJECTIVE])) == [0, 2, 1]


def test_equal_values_keep_the_order_of_trials():
    assert ordered_values(
        rank_candidates(reversed(make_candidates([1.0], [1.0], [1.0])), [MAX_OBJECTIVE])
    ) == [0, 1, 2]


def test_equal_params_count_once_with_their_best_value():
    repeated_params = [
        Candidate(0, {"x": 7}, (1.0,)),
        Candidate(1, {"x": 8}, (2.0,)),
        Candidate(2, {"x": 7}, (3.0,)),
    ]
    assert ordered_values(rank_candidates(repeated_params, [MAX_OBJECTIVE])) == [7, 8]


def test_pareto_front_precedes_dominated_candidates():
    # Candidates 0 and 2 are the front; 2 dominates 1, and all dominate 3.
    ranked = rank_candidates(
        make_candidates([1.0, 0.1], [4.0, 0.9], [5.0, 0.8], [0.5, 1.0]), [MAX_OBJECTIVE, MIN_OBJECTIVE]
    )
    assert ordered_values(ranked) == [2, 0, 1, 3]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_no_candidate_dominates_an_earlier_one(points):
    all_candidates = make_candidates(*[[float(a), float(b)] for a, b in points])
    ranked = [
        points[number]
        for number in ordered_values(rank_candidates(all_candidates, [MAX_OBJECTIVE, MIN_OBJECTIVE]))
    ]
    assert sorted(ranked) == sorted(points)
    for position, (a, b) in enumerate(ranked):
        assert not any(c >= a and d <= b and (c, d) != (a, b) for c, d in ranked[position + 1 :])
