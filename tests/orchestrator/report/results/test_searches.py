"""What a search tried and found: best so far, edges of ranges, fronts, volumes."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import Plan
from orchestrator.report.figures.search_figures import POINTS, search_panels
from orchestrator.report.figures.style import inline_svg
from orchestrator.report.results.searches import SearchCourse, search_courses
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
MIDDLE = {"model.x": 0.003, "model.n": 5, "model.c": 2, "model.word": "b"}


def plan(*objectives: Objective) -> Plan:
    arm = make_arm("one", SPACE)
    return make_plan([arm], trials_per_arm=8, objectives=objectives or (SCORE,), resources=Resources(cpus=2))


def record(
    number: int,
    score: float,
    *,
    size: float = 1.0,
    outcome: OutcomeKind = OutcomeKind.FINISHED,
    ended_at: float | None = None,
    **changed: object,
) -> Record:
    return Record(
        *(f"t{number}", "synthetic", "one", "search", number, number, None),
        assignment={**MIDDLE, **{f"model.{name}": value for name, value in changed.items()}},
        overrides={},
        settings={},
        outcome=outcome,
        reason="made up",
        last=Measurement(1, 900.0, {"valid/score": score, "valid/size": size}),
        best=None,
        started_at=0.0,
        ended_at=float(number) if ended_at is None else ended_at,
        attempts=1,
    )


def course(*records: Record, objectives: tuple[Objective, ...] = ()) -> SearchCourse:
    (found,) = search_courses(plan(*objectives), records)
    return found


def test_best_so_far_is_of_trials_that_finished_in_the_order_in_which_they_ended() -> None:
    found = course(
        record(0, 0.5, ended_at=9.0),
        record(1, 0.9, outcome=OutcomeKind.PRUNED),
        record(2, 0.4),
        record(3, 0.1, outcome=OutcomeKind.SKIPPED),
    )
    assert [trial.number for trial in found.trials] == [1, 2, 0]
    assert found.best_so_far == ((2, 1.0, 0.4), (3, 1.5, 0.5))
    assert found.best is not None
    assert found.best.number == 0


def test_where_small_values_are_good_the_best_is_the_least() -> None:
    least = Objective(metric="valid/score", goal="min")
    found = course(record(0, 0.5), record(1, 0.9), record(2, 0.2), objectives=(least,))
    assert [value for _, _, value in found.best_so_far] == [0.5, 0.5, 0.2]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ""),
        ({"x": 1.05e-4}, "model.x, 0.000105, lies at the low end"),
        ({"x": 0.05}, ""),
        ({"x": 0.099}, "model.x, 0.099, lies at the high end"),
        ({"n": 9}, "model.n, 9, lies at the high end"),
        ({"n": 1}, "model.n, 1, lies at the low end"),
        ({"c": 4}, "model.c, 4, lies at the high end"),
        ({"word": "c"}, ""),
    ],
)
def test_a_best_value_at_the_edge_of_its_range_is_told(changed: dict[str, object], expected: str) -> None:
    edges = course(record(0, 0.5), record(1, 0.9, **changed)).edges
    assert len(edges) == bool(expected)
    assert expected in " ".join(edges)


def test_a_front_holds_what_nothing_betters_and_its_volume_never_shrinks() -> None:
    found = course(
        record(0, 0.2, size=4.0),
        record(1, 0.8, size=3.0),
        record(2, 0.5, size=1.0),
        record(3, 0.5, size=2.0),
        objectives=(SCORE, SIZE),
    )
    assert [each.number for each in found.front] == [1, 2]
    # Beyond the worst of both, 0.2 and 4: 0.6 x 1, then with the second 0.3 x 2 more.
    assert [count for count, _ in found.hypervolumes] == [1, 2, 3, 4]
    assert [volume for _, volume in found.hypervolumes] == pytest.approx([0.0, 0.6, 1.2, 1.2])


def test_nothing_finished_has_no_best_and_no_importance() -> None:
    found = course(record(0, 0.5, outcome=OutcomeKind.DIVERGED), replace(record(1, 0.4), last=None))
    assert (found.best, found.importance, found.best_so_far, found.edges) == (None, None, (), ())


def test_importance_is_of_finished_trials() -> None:
    tried = [
        record(number, 0.1 * (number % 3), n=(1, 5, 9)[number % 3], x=1e-3 + number / 1e4)
        for number in range(12)
    ]
    found = course(*tried).importance
    assert found is not None
    assert (found.trials, found.method, next(iter(found.shares))) == (12, "fANOVA", "model.n")
    assert course(*tried).importance == found


def test_a_picture_of_thousands_of_trials_holds_no_more_than_it_can_show() -> None:
    found = course(*(record(number, number % 97 / 97, x=1e-4 + number / 1e5) for number in range(2000)))
    pictures = {search_panel.name: inline_svg(search_panel) for search_panel in search_panels(found, 1)}
    assert {"search-1-trials", "search-1-hours", "search-1-slice-1"} <= set(pictures)
    for picture in pictures.values():
        assert picture.count("<use ") <= POINTS + 50
        assert len(picture) < 60_000


def test_a_last_report_without_the_objective_hides_no_trial() -> None:
    found = record(0, 0.4)
    ended_otherwise = replace(found, judged=found.last, last=Measurement(2, 950.0, {"train/loss": 0.1}))
    best = course(ended_otherwise, record(1, 0.2)).best
    assert best is not None
    assert (best.number, best.values) == (0, (0.4,))
