"""The search of one arm: determinism, conditions, constraints, what samplers and stoppers are told."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.conductor import arm_search
from orchestrator.conductor.arm_search import ArmSearch
from orchestrator.conductor.messages import NothingAdmitted
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
from tests.support.specs.plans import LINE, MAX_SCORE, make_arm, make_plan

WIDE = Space(
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
CONDITIONAL = Space(
    (
        Dimension("model.unit", Choice(("token", "sequence", None))),
        Dimension("model.threshold", Float(0.0, 1.0), (When("model.unit", ("token", "sequence")),)),
        Dimension("model.pooled", Choice((True, False)), (When("model.unit", ("sequence",)),)),
        Dimension("model.extra", Float(0.0, 1.0), (When("task.name", ("another",)),)),
    )
)
LATTICE = Space(
    (
        Dimension("model.unit", Choice(("token", "sequence", None))),
        Dimension(
            "model.threshold", Float(0.0, 1.0, step=0.125), (When("model.unit", ("token", "sequence")),)
        ),
        Dimension("model.x", Float(0.0, 1.0, step=0.01)),
    )
)
KEYWORDS = {
    "random": {},
    "tpe": {"n_startup_trials": 4},
    "qmc": {},
    "nsga2": {"population_size": 4},
    "nsga3": {"population_size": 4},
    "BruteForceSampler": {},
    "grid": {},
    "tests.support.specs.samplers.Nearby": {"width": 0.3},
}


def search(space=LINE, sampler="random", stopper=None, objectives=MAX_SCORE, seed=0, **keywords):
    plan = SearchPlan(9, {"name": sampler, **keywords}, stopper, objectives, seed)
    return ArmSearch(make_arm("arm", space), plan)


def run(found, number, values=None, assignment=None):
    """One trial that reports once and finishes; its value follows from `x` unless given."""
    if assignment is None:
        assignment = found.ask(number)
    else:
        found.record_assignment(number, assignment)
    x = float(assignment.get("model.x", 0.5))
    found.report(number, 1, values or (-((x - 0.3) ** 2),))
    found.finished(number)
    return assignment


def draw(number_of_trials, **keywords):
    found = search(**keywords)
    return [run(found, number) for number in range(number_of_trials)]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_every_value_is_in_its_domain_and_of_its_type(sampler):
    for assignment in draw(30, space=WIDE, sampler=sampler):
        assert tuple(assignment) == WIDE.paths
        assert all(contains(WIDE[path].domain, value) for path, value in assignment.items())


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_dimension_exists_only_under_its_conditions(sampler):
    for assignment in draw(30, space=CONDITIONAL, sampler=sampler):
        unit = assignment["model.unit"]
        assert ("model.threshold" in assignment) == (unit is not None)
        assert ("model.pooled" in assignment) == (unit == "sequence")
        assert "model.extra" not in assignment


def test_other_seeds_and_numbers_draw_other_values():
    drawn = draw(4) + draw(4, seed=1)
    assert len({assignment["model.x"] for assignment in drawn}) == 8


@pytest.mark.parametrize("sampler", KEYWORDS)
@pytest.mark.parametrize("cut", [0, 1, 9, 14])
def test_a_rebuilt_search_asks_what_the_undisturbed_one_did(sampler, cut):
    agree_after(cut, 18, sampler, **KEYWORDS[sampler])


@pytest.mark.slow
def test_a_rebuilt_search_by_gaussian_process_agrees():
    agree_after(5, 7, "gp", n_startup_trials=3)


@cache  # of a sampler it is the same for all cuts
def undisturbed(trials, sampler, keywords):
    return draw(trials, space=LATTICE, sampler=sampler, **dict(keywords))


def agree_after(cut, trials, sampler, **keywords):
    whole = undisturbed(trials, sampler, tuple(keywords.items()))
    found = search(LATTICE, sampler, **keywords)
    for number in range(cut):
        run(found, number, assignment=whole[number])
    assert [run(found, number) for number in range(cut, trials)] == whole[cut:]


@pytest.mark.parametrize("sampler", ["grid", "bruteforce"])
def test_every_combination_is_tried_once(sampler):
    """Of the units with a threshold nine each, and the one without."""
    space = Space(LATTICE.dimensions[:2])
    drawn = draw(19, space=space, sampler=sampler)
    assert len({repr(assignment) for assignment in drawn}) == 19
    assert all(contains(space[path].domain, value) for each in drawn for path, value in each.items())


def test_a_grid_goes_on_whatever_runs_and_fails():
    found = search(LATTICE, "grid")
    asked = [found.ask(number) for number in range(3)]
    found.failed(1)
    found.diverged(2)
    again = search(LATTICE, "grid")
    for number, assignment in enumerate(asked[:2]):
        again.record_assignment(number, assignment)
    assert [again.ask(2), again.ask(3)] == [asked[2], found.ask(3)]


@pytest.mark.slow
@given(st.integers(0, 8), st.integers(0, 2**31))
@examples(3)
def test_a_rebuilt_search_with_constraints_agrees_whatever_the_seed(cut, seed):
    """Draws that were refused count too: Hyperband's brackets go by the numbers of all draws."""
    space = Space(
        (Dimension("model.x", Float(0.0, 1.0)), Dimension("model.y", Float(0.0, 1.0))),
        (Constraint("model.x", "<", "model.y"),),
    )
    stopper = {"name": "hyperband", "grace_steps": 1, "max_resource": 9}

    def made():
        return search(space, "tpe", stopper, seed=seed, n_startup_trials=3)

    def verdicts(found, number):
        return [found.report(number, step, (number % 3 / step,)) for step in (1, 3, 9)]

    live, rebuilt = made(), made()
    for number in range(9):
        assignment = live.ask(number)
        if number < cut:
            rebuilt.record_assignment(number, assignment)
        else:
            assert rebuilt.ask(number) == assignment
        assert verdicts(rebuilt, number) == verdicts(live, number)
        live.finished(number)
        rebuilt.finished(number)


def test_another_optuna_that_draws_otherwise_is_overruled_by_what_ran():
    found = search(sampler="qmc")
    for number in range(4):
        run(found, number, assignment={"model.x": 0.123})
    assert found.ask(4)["model.x"] != 0.123


def test_constraints_hold_in_every_draw():
    space = Space(
        (Dimension("model.a", Int(1, 10)), Dimension("model.b", Int(1, 10))),
        (Constraint("model.a", "<", "model.b"), Constraint("model.b", "!=", 7)),
    )
    for assignment in draw(12, space=space, sampler="tpe", n_startup_trials=4):
        assert assignment["model.a"] < assignment["model.b"] != 7


def test_a_constraint_that_cannot_hold_is_given_up_on(monkeypatch):
    monkeypatch.setattr(arm_search, "TRIES", 40)
    space = Space(LINE.dimensions, (Constraint("model.x", ">", 2),))
    found = search(space)
    with pytest.raises(
        NothingAdmitted, match=r"must satisfy model.x > 2, and 40 draws for arm 'arm' did not"
    ):
        found.ask(0)


def test_a_space_without_dimensions_is_asked_too():
    assert draw(2, space=Space(), sampler="tpe") == [{}, {}]


def test_tpe_learns():
    # Uniform draws miss the tenth around 0.3 in all of the last ten with odds 0.9 ** 10 = 0.35.
    last = [assignment["model.x"] for assignment in draw(40, sampler="tpe")[-10:]]
    assert sum(abs(x - 0.3) < 0.05 for x in last) >= 3


def states(found):
    return [(trial.state.name, trial.values) for trial in found._study.get_trials(deepcopy=False)]


def test_a_divergence_ranks_with_the_worst_seen():
    found = search()
    run(found, 0, (0.9,))
    run(found, 1, (0.2,))
    found.ask(2)
    found.diverged(2)
    assert states(found)[2] == ("COMPLETE", [0.2])


def test_a_divergence_before_anything_was_seen_waits_for_a_rank():
    found = search(objectives=(Objective(metric="valid/loss", goal="min"),))
    found.ask(0)
    found.diverged(0)
    assert states(found)[0][0] == "RUNNING"
    run(found, 1, (4.0,))
    run(found, 2, (5.0,))
    assert states(found) == [("COMPLETE", [4.0]), ("COMPLETE", [4.0]), ("COMPLETE", [5.0])]


def test_failures_and_prunings_are_told_as_such():
    found = search(stopper={"name": "median"})
    found.ask(0)
    found.failed(0)
    found.ask(1)
    found.report(1, 1, (0.4,))
    found.pruned(1)
    assert states(found) == [("FAIL", None), ("PRUNED", [0.4])]


def test_asha_stops_what_is_behind_at_a_rung_and_spares_the_grace():
    found = search(stopper={"name": "asha", "grace_steps": 10, "reduction": 2})
    for number in range(4):
        found.ask(number)
    assert not any(found.report(number, 9, (float(-number),)) for number in range(4))
    assert [found.report(number, 10, (float(-number),)) for number in range(4)] == [False, True, True, True]


def test_an_early_stopper_rebuilt_from_history_decides_alike():
    stopper = {"name": "asha", "grace_steps": 1, "reduction": 3}
    live, rebuilt = search(stopper=stopper), search(stopper=stopper)
    assignments = [live.ask(number) for number in range(6)]
    verdicts = [
        live.report(number, step, (float(number % 3 * step),)) for step in (1, 3) for number in range(6)
    ]
    for number, assignment in enumerate(assignments):
        rebuilt.record_assignment(number, assignment)
    again = [
        rebuilt.report(number, step, (float(number % 3 * step),)) for step in (1, 3) for number in range(6)
    ]
    assert again == verdicts
    assert {True, False} <= set(verdicts)


FIRST = (
    {"model.unit": "token", "model.threshold": 0.25, "model.x": 0.31},
    {"model.unit": None, "model.x": 0.5},
)


def with_first_points(sampler, **keywords):
    plan = SearchPlan(9, {"name": sampler, **keywords}, None, MAX_SCORE, 0)
    return ArmSearch(replace(make_arm("arm", LATTICE), first=FIRST), plan)


@pytest.mark.parametrize("sampler", KEYWORDS)
def test_points_that_are_tried_first_come_first_and_are_told_to_the_sampler(sampler):
    keywords = KEYWORDS[sampler]
    found = with_first_points(sampler, **keywords)
    whole = [run(found, number) for number in range(14)]
    assert tuple(whole[:2]) == FIRST
    shown = found._study.get_trials(deepcopy=False)[:2]
    assert [each.value for each in shown] == [-((point["model.x"] - 0.3) ** 2) for point in FIRST]
    for cut in (1, 2, 7):
        again = with_first_points(sampler, **keywords)
        for number in range(cut):
            run(again, number, assignment=whole[number])
        assert [run(again, number) for number in range(cut, 14)] == whole[cut:]


def test_a_grid_tries_every_combination_once_those_asked_for_first():
    found = with_first_points("grid")
    whole = [run(found, number) for number in range(19 * 101)]
    assert tuple(whole[:2]) == FIRST
    assert len({repr(sorted(each.items())) for each in whole}) == 19 * 101


@pytest.mark.parametrize("objectives", [1, 2])
def test_a_sampler_turns_away_from_what_is_infeasible(objectives):
    """Half of the range is infeasible, and TPE draws from it less and less."""
    metrics = tuple(Objective(metric=f"valid/{name}", goal="max") for name in ("score", "cost")[:objectives])
    plan = make_plan(
        1, trials_per_arm=60, sampler={"name": "tpe", "n_startup_trials": 10}, objectives=metrics
    )
    search = ArmSearch(plan.arms[0], plan.search)
    infeasible = []
    for number in range(60):
        x = search.ask(number)["model.x"]
        if x > 0.5:
            infeasible.append(number)
            search.infeasible(number)
        else:
            search.report(number, 1, [0.5] * objectives)
            search.finished(number)
    late = sum(number >= 20 for number in infeasible)
    assert late / 40 < 0.25
