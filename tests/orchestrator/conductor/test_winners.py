from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.winners import Candidate, best_first
from orchestrator.spec.section import Objective

MAX, MIN = Objective(metric="valid/a", goal="max"), Objective(metric="valid/b", goal="min")


def candidates(*values):
    return [Candidate(number, {"x": number}, tuple(each)) for number, each in enumerate(values)]


def order(found):
    return [trial.assignment["x"] for trial in found]


def test_largest_first_when_the_goal_is_max():
    assert order(best_first(candidates([1.0], [3.0], [2.0]), [MAX])) == [1, 2, 0]


def test_smallest_first_when_the_goal_is_min():
    assert order(best_first(candidates([1.0], [3.0], [2.0]), [MIN])) == [0, 2, 1]


def test_equal_values_keep_the_order_of_asking():
    assert order(best_first(reversed(candidates([1.0], [1.0], [1.0])), [MAX])) == [0, 1, 2]


def test_an_assignment_counts_once_with_its_best_value():
    twice = [Candidate(0, {"x": 7}, (1.0,)), Candidate(1, {"x": 8}, (2.0,)), Candidate(2, {"x": 7}, (3.0,))]
    assert order(best_first(twice, [MAX])) == [7, 8]


def test_true_is_not_one():
    both = [Candidate(0, {"x": True}, (1.0,)), Candidate(1, {"x": 1}, (2.0,))]
    assert len(best_first(both, [MAX])) == 2


def test_a_pareto_front_comes_before_what_it_dominates():
    # 0 and 2 are the front; 1 is dominated by 2, 3 by all.
    found = best_first(candidates([1.0, 0.1], [4.0, 0.9], [5.0, 0.8], [0.5, 1.0]), [MAX, MIN])
    assert order(found) == [2, 0, 1, 3]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_nothing_later_dominates_anything_earlier(points):
    made = candidates(*[[float(a), float(b)] for a, b in points])
    found = [points[number] for number in order(best_first(made, [MAX, MIN]))]
    assert sorted(found) == sorted(points)
    for place, (a, b) in enumerate(found):
        assert not any(c >= a and d <= b and (c, d) != (a, b) for c, d in found[place + 1 :])
