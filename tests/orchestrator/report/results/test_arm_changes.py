"""The first table of a report lists every change of each arm."""

from dataclasses import replace

from orchestrator.plan.types import Change, Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.tables import all_tables
from orchestrator.trials import Record
from search_spaces.dimensions import Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answers import make_study_plan, make_study_records

SPACE = Space((Dimension("train.lr", Float(0.0, 1.0)), Dimension("model.x", Float(0.0, 1.0))))
TWO_CHANGES = (Change("model.gate", before=True, after=False), Change("train.steps", 100, 500))


def build_plan(changes: tuple[Change, ...] = TWO_CHANGES, **fields: object) -> Plan:
    base_plan = make_study_plan(("baseline", "good"))
    baseline, good_arm = base_plan.arms
    return replace(base_plan, arms=(baseline, replace(good_arm, changes=changes, **fields)))  # type: ignore[arg-type]


def change_rows(plan: Plan, trial_records: list[Record]) -> list[tuple[str, ...]]:
    return list(all_tables(summarise(plan, trial_records))[0].rows)


def test_first_table_lists_every_change_of_an_arm() -> None:
    trial_records = [record for record in make_study_records() if record.arm in ("baseline", "good")]
    assert change_rows(build_plan(), trial_records) == [
        ("baseline", "-", "-"),
        ("good", "baseline", "model.gate true -> false; train.steps 100 -> 500"),
    ]


def test_table_lists_searched_and_dropped_fields() -> None:
    settings = {"model": {"x": 0.5}, "train": {"lr": 0.1}}
    plan = build_plan((Change("model.x", 0.2, 0.5),), settings=settings, dropped=("model.x", "model.gone"))
    baseline, good_arm = plan.arms
    plan = replace(
        plan, arms=(replace(baseline, space=SPACE), replace(good_arm, space=Space(SPACE.dimensions[:1])))
    )
    params_of_arm = {"baseline": {"train.lr": 0.3, "model.x": 0.75}, "good": {"train.lr": 0.4}}
    trial_records = [
        replace(record, assignment=params_of_arm[record.arm])
        for record in make_study_records()
        if record.arm in params_of_arm
    ]
    assert change_rows(plan, trial_records) == [
        ("baseline", "-", "-", "train.lr = 0.3; model.x = 0.75", "-"),
        ("good", "baseline", "model.x 0.75 -> 0.5", "train.lr = 0.4", "model.x = 0.5; model.gone"),
    ]
    assert "0.4" not in change_rows(plan, [])[1][3]
