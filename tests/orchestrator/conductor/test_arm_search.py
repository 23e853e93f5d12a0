"""The search of one arm: determinism, conditions, constraints, and reports to samplers and stoppers."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor.arm_search import ArmSearch
from orchestrator.plan.types import SearchPlan
from orchestrator.spec.section import Objective
from search_spaces.dimensions import (
    Choice,
    Constraint,
    Dimension,
    Fixed,
    Float,
    Int,
    Powers,
    Space,
    When,
    contains,
)
from tests.support.specs.examples import examples
from tests.support.specs.plans import LINE, MAX_SCORE, make_arm

MIXED_SPACE = Space(
    (
        Dimension("model.kind", Choice(("plain", None, 1, True, 0.5))),
        Dimension("model.x", Float(1e-4, 1.0, log=True)),
        Dimension("model.step", Float(0.0, 1.0, step=0.25)),
        Dimension("model.layers", Int(2, 10, step=4)),
        Dimension("model.width", Int(1, 64, log=True)),
        Dimension("model.batch", Powers(16, 256, 2)),
        Dimension("model.sizes", Choice(([64], [64, 32], {"a": None}))),
        Dimension("model.held", Fixed("always")),
    )
)
CONDITIONAL_SPACE = Space(
    (
        Dimension("model.unit", Choice(("token", "sequence", None))),
        Dimension("model.threshold", Float(0.0, 1.0), (When("model.unit", ("token", "sequence")),)),
        Dimension("model.pooled", Choice((True, False)), (When("model.unit", ("sequence",)),)),
        Dimension("model.extra", Float(0.0, 1.0), (When("task.name", ("another",)),)),
    )
)
GRID_SPACE = Space(
    (
        Dimension("model.unit", Choice(("token", "sequence", None))),
        Dimension(
            "model.threshold", Float(0.0, 1.0, step=0.125), (When("model.unit", ("token", "sequence")),)
        ),
        Dimension("model.x", Float(0.0, 1.0, step=0.01)),
    )
)
SAMPLER_KEYWORDS = {
    "random": {},
    "tpe": {"n_startup_trials": 4},
    "qmc": {},
    "nsga2": {"population_size": 4},
    "nsga3": {"population_size": 4},
    "BruteForceSampler": {},
    "grid": {},
    "tests.support.specs.samplers.RepeatBest": {"width": 0.3},
}


def make_search(space=LINE, sampler="random", stopper=None, objectives=MAX_SCORE, seed=0, **keywords):
    plan = SearchPlan(9, {"name": sampler, **keywords}, stopper, objectives, seed)
    return ArmSearch(make_arm("arm", space), plan)


def run_trial(searcher, number, values=None, params=None):
    """Run one trial with one report; by default its value depends on `x`."""
    if params is None:
        params = searcher.ask(number)
    else:
        searcher.record_params(number, params)
    x = float(params.get("model.x", 0.5))
    searcher.report(number, 1, values or (-((x - 0.3) ** 2),))
    searcher.record_finished(number)
    return params


def draw_params(num_trials, **keywords):
    searcher = make_search(**keywords)
    return [run_trial(searcher, number) for number in range(num_trials)]


def test_every_value_has_the_domain_and_type_of_its_dimension():
    for params in draw_params(30, space=MIXED_SPACE, sampler="tpe"):
        assert tuple(params) == MIXED_SPACE.paths
        assert all(contains(MIXED_SPACE[path].domain, value) for path, value in params.items())


def test_dimension_exists_only_under_its_conditions():
    for params in draw_params(30, space=CONDITIONAL_SPACE, sampler="tpe"):
        unit = params["model.unit"]
        assert ("model.threshold" in params) == (unit is not None)
        assert ("model.pooled" in params) == (unit == "sequence")
        assert "model.extra" not in params


def test_different_seeds_and_numbers_draw_different_values():
    all_params = draw_params(4) + draw_params(4, seed=1)
    assert len({params["model.x"] for params in all_params}) == 8


@pytest.mark.parametrize("sampler", SAMPLER_KEYWORDS)
@pytest.mark.parametrize("num_replayed", [0, 9])
def test_rebuilt_search_draws_the_same_params(sampler, num_replayed):
    check_rebuilt_search(num_replayed, 18, sampler, **SAMPLER_KEYWORDS[sampler])


@pytest.mark.slow
def test_rebuilt_gaussian_process_search_draws_the_same_params():
    check_rebuilt_search(5, 7, "gp", n_startup_trials=3)


@cache  # equal for all values of num_replayed
def draw_uninterrupted(num_trials, sampler, keywords):
    return draw_params(num_trials, space=GRID_SPACE, sampler=sampler, **dict(keywords))


def check_rebuilt_search(num_replayed, num_trials, sampler, **keywords):
    all_params = draw_uninterrupted(num_trials, sampler, tuple(keywords.items()))
    searcher = make_search(GRID_SPACE, sampler, **keywords)
    for number in range(num_replayed):
        run_trial(searcher, number, params=all_params[number])
    assert [run_trial(searcher, number) for number in range(num_replayed, num_trials)] == all_params[
        num_replayed:
    ]


@pytest.mark.parametrize("sampler", ["grid", "bruteforce"])
def test_grid_tries_every_combination_once(sampler):
    """Each of two units has nine thresholds, and the third unit has none."""
    space = Space(GRID_SPACE.dimensions[:2])
    all_params = draw_params(19, space=space, sampler=sampler)
    assert len({repr(params) for params in all_params}) == 19
    assert all(contains(space[path].domain, value) for params in all_params for path, value in params.items())


def test_grid_continues_past_failures():
    searcher = make_search(GRID_SPACE, "grid")
    drawn_params = [searcher.ask(number) for number in range(3)]
    searcher.record_failed(1)
    searcher.record_diverged(2)
    second_search = make_search(GRID_SPACE, "grid")
    for number, params in enumerate(drawn_params[:2]):
        second_search.record_params(number, params)
    assert [second_search.ask(2), second_search.ask(3)] == [drawn_params[2], searcher.ask(3)]


@pytest.mark.slow
@given(st.integers(0, 8), st.integers(0, 2**31))
@examples(3)
def test_rebuilt_search_with_constraints_draws_the_same_params(num_replayed, seed):
    """Hyperband assigns brackets by the number of all draws, including refused draws."""
    space = Space(
        (Dimension("model.x", Float(0.0, 1.0)), Dimension("model.y", Float(0.0, 1.0))),
        (Constraint("model.x", "<", "model.y"),),
    )
    stopper = {"name": "hyperband", "grace_steps": 1, "max_resource": 9}

    def make_searcher():
        return make_search(space, "tpe", stopper, seed=seed, n_startup_trials=3)

    def report_steps(searcher, number):
        return [searcher.report(number, step, (number % 3 / step,)) for step in (1, 3, 9)]

    live_search, rebuilt_search = make_searcher(), make_searcher()
    for number in range(9):
        params = live_search.ask(number)
        if number < num_replayed:
            rebuilt_search.record_params(number, params)
        else:
            assert rebuilt_search.ask(number) == params
        assert report_steps(rebuilt_search, number) == report_steps(live_search, number)
        live_search.record_finished(number)
        rebuilt_search.record_finished(number)


def test_recorded_params_replace_the_draws_of_another_optuna_version():
    searcher = make_search(sampler="qmc")
    for number in range(4):
        run_trial(searcher, number, params={"model.x": 0.123})
    assert searcher.ask(4)["model.x"] != 0.123


def test_constraints_hold_in_every_draw():
    space = Space(
        (Dimension("model.a", Int(1, 10)), Dimension("model.b", Int(1, 10))),
        (Constraint("model.a", "<", "model.b"), Constraint("model.b", "!=", 7)),
    )
    for params in draw_params(12, space=space, sampler="tpe", n_startup_trials=4):
        assert params["model.a"] < params["model.b"] != 7


def test_tpe_concentrates_on_good_values():
    # Ten uniform draws miss a tenth of the range with probability 0.9 ** 10 = 0.35.
    last_values = [params["model.x"] for params in draw_params(40, sampler="tpe")[-10:]]
    assert sum(abs(x - 0.3) < 0.05 for x in last_values) >= 3


def trial_states(searcher):
    return [(trial.state.name, trial.values) for trial in searcher._study.get_trials(deepcopy=False)]


def test_diverged_trial_has_the_worst_value():
    searcher = make_search()
    run_trial(searcher, 0, (0.9,))
    run_trial(searcher, 1, (0.2,))
    searcher.ask(2)
    searcher.record_diverged(2)
    assert trial_states(searcher)[2] == ("COMPLETE", [0.2])


def test_diverged_trial_waits_for_the_first_value():
    searcher = make_search(objectives=(Objective(metric="valid/loss", goal="min"),))
    searcher.ask(0)
    searcher.record_diverged(0)
    assert trial_states(searcher)[0][0] == "RUNNING"
    run_trial(searcher, 1, (4.0,))
    run_trial(searcher, 2, (5.0,))
    assert trial_states(searcher) == [("COMPLETE", [4.0]), ("COMPLETE", [4.0]), ("COMPLETE", [5.0])]


def test_failed_and_pruned_trials_are_reported_to_the_sampler():
    searcher = make_search(stopper={"name": "median"})
    searcher.ask(0)
    searcher.record_failed(0)
    searcher.ask(1)
    searcher.report(1, 1, (0.4,))
    searcher.record_pruned(1)
    assert trial_states(searcher) == [("FAIL", None), ("PRUNED", [0.4])]


FIRST_PARAMS = (
    {"model.unit": "token", "model.threshold": 0.25, "model.x": 0.31},
    {"model.unit": None, "model.x": 0.5},
)


def search_with_first_params(sampler, **keywords):
    plan = SearchPlan(9, {"name": sampler, **keywords}, None, MAX_SCORE, 0)
    return ArmSearch(replace(make_arm("arm", GRID_SPACE), first=FIRST_PARAMS), plan)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "grid"])
def test_first_params_run_first_and_reach_the_sampler(sampler):
    keywords = SAMPLER_KEYWORDS[sampler]
    searcher = search_with_first_params(sampler, **keywords)
    all_params = [run_trial(searcher, number) for number in range(14)]
    assert tuple(all_params[:2]) == FIRST_PARAMS
    trials = searcher._study.get_trials(deepcopy=False)[:2]
    assert [trial.value for trial in trials] == [-((params["model.x"] - 0.3) ** 2) for params in FIRST_PARAMS]
    rebuilt_search = search_with_first_params(sampler, **keywords)
    for number in range(7):
        run_trial(rebuilt_search, number, params=all_params[number])
    assert [run_trial(rebuilt_search, number) for number in range(7, 14)] == all_params[7:]


def test_sampler_avoids_infeasible_params():
    """Half of the range is infeasible, and TPE draws from it ever less often."""
    searcher = make_search(sampler="tpe", n_startup_trials=10)
    infeasible = []
    for number in range(60):
        if searcher.ask(number)["model.x"] > 0.5:
            infeasible.append(number)
            searcher.record_infeasible(number)
        else:
            searcher.report(number, 1, [0.5])
            searcher.record_finished(number)
    num_late = sum(number >= 20 for number in infeasible)
    assert num_late / 40 < 0.25
