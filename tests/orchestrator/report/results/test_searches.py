"""Search results: best value so far, edges of ranges, Pareto fronts and hypervolumes."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import Plan
from orchestrator.report.results.searches import SearchHistory, search_courses
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import OutcomeKind, Record
from search_spaces.dimensions import Choice, Dimension, Float, Int, Space
from tests.support.specs.plans import make_arm, make_plan
from trainables.protocol import Measurement

SCORE, SIZE = Objective(metric="valid/score", goal="max"), Objective(metric="valid/size", goal="min")
SPACE = Space(
    (
        Dimension("model.x", Float(1e-4, 1e-1, log=True)),
        Dimension("model.n", Int(1, 9, step=4)),
        Dimension("model.c", Choice((1, 2, 4))),
        Dimension("model.word", Choice(("a", "b", "c"))),
    )
)
MIDDLE_PARAMS = {"model.x": 0.003, "model.n": 5, "model.c": 2, "model.word": "b"}


def build_plan(*objectives: Objective) -> Plan:
    arm = make_arm("one", SPACE)
    return make_plan([arm], trials_per_arm=8, objectives=objectives or (SCORE,), resources=Resources(cpus=2))


def build_record(
    number: int,
    score: float,
    *,
    size: float = 1.0,
    outcome: OutcomeKind = OutcomeKind.FINISHED,
    ended_at: float | None = None,
    **params: object,
) -> Record:
    return Record(
        *(f"t{number}", "synthetic", "one", "search", number, number, None),
        assignment={**MIDDLE_PARAMS, **{f"model.{name}": value for name, value in params.items()}},
        overrides={},
        settings={},
        outcome=outcome,
        reason="synthetic",
        last=Measurement(1, 900.0, {"valid/score": score, "valid/size": size}),
        best=None,
        started_at=0.0,
        ended_at=float(number) if ended_at is None else ended_at,
        attempts=1,
    )


def search_course(*records: Record, objectives: tuple[Objective, ...] = ()) -> SearchHistory:
    (result,) = search_courses(build_plan(*objectives), records)
    return result


def test_best_so_far_uses_finished_trials_in_order_of_their_ends() -> None:
    course = search_course(
        build_record(0, 0.5, ended_at=9.0),
        build_record(1, 0.9, outcome=OutcomeKind.PRUNED),
        build_record(2, 0.4),
        build_record(3, 0.1, outcome=OutcomeKind.SKIPPED),
    )
    assert [trial.number for trial in course.trials] == [1, 2, 0]
    assert course.best_so_far == ((2, 1.0, 0.4), (3, 1.5, 0.5))
    assert course.best.number == 0


def test_best_value_of_a_minimised_objective_is_the_smallest() -> None:
    minimised_score = Objective(metric="valid/score", goal="min")
    course = search_course(
        build_record(0, 0.5), build_record(1, 0.9), build_record(2, 0.2), objectives=(minimised_score,)
    )
    assert [value for _, _, value in course.best_so_far] == [0.5, 0.5, 0.2]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"x": 1.05e-4}, r"model\.x, 0\.000105, .* low "),
        ({"x": 0.05}, ""),
        ({"n": 9}, r"model\.n, 9, .* high "),
        ({"c": 4}, r"model\.c, 4, .* high "),
        ({"word": "c"}, ""),
    ],
)
def test_best_value_at_an_edge_of_its_range_is_reported(params: dict[str, object], expected: str) -> None:
    edges = search_course(build_record(0, 0.5), build_record(1, 0.9, **params)).edges
    assert len(edges) == bool(expected)
    assert re.search(expected, " ".join(edges))


def test_pareto_front_and_its_hypervolume() -> None:
    course = search_course(
        build_record(0, 0.2, size=4.0),
        build_record(1, 0.8, size=3.0),
        build_record(2, 0.5, size=1.0),
        build_record(3, 0.5, size=2.0),
        objectives=(SCORE, SIZE),
    )
    assert [trial.number for trial in course.front] == [1, 2]
    # The reference point is (0.2, 4). Trial 1 adds 0.6 x 1 and trial 2 adds 0.3 x 2.
    assert [count for count, _ in course.hypervolumes] == [1, 2, 3, 4]
    assert [volume for _, volume in course.hypervolumes] == pytest.approx([0.0, 0.6, 1.2, 1.2])


def test_search_without_finished_trials_has_no_best_and_no_importance() -> None:
    course = search_course(
        build_record(0, 0.5, outcome=OutcomeKind.DIVERGED), replace(build_record(1, 0.4), last=None)
    )
    assert (course.best, course.importance, course.best_so_far, course.edges) == (None, None, (), ())


def test_importance_uses_finished_trials() -> None:
    trial_records = [
        build_record(number, 0.1 * (number % 3), n=(1, 5, 9)[number % 3], x=1e-3 + number / 1e4)
        for number in range(12)
    ]
    importance = search_course(*trial_records).importance
    assert (importance.trials, importance.method, next(iter(importance.shares))) == (12, "fANOVA", "model.n")
    assert search_course(*trial_records).importance == importance
