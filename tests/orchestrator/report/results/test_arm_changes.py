"""The first table of a report: what an arm changes, however little of it its name says."""

import json
from dataclasses import replace

from orchestrator.plan.types import Change, Plan
from orchestrator.report.results.arm_changes import ArmChanges, full_change_lines, has_omissions
from orchestrator.report.results.arm_changes import change_rows as rows_of
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import all_tables
from orchestrator.trials import Record
from search_spaces.dimensions import Dimension, Float, Space
from tests.orchestrator.report.comparisons.test_answers import plan, records

SPACE = Space((Dimension("train.lr", Float(0.0, 1.0)), Dimension("model.x", Float(0.0, 1.0))))
MORE = (Change("model.gate", before=True, after=False), Change("train.steps", 100, 500))


def study(changes: tuple[Change, ...] = MORE, **parts: object) -> Plan:
    made = plan(("baseline", "good"))
    baseline, other = made.arms
    return replace(made, arms=(baseline, replace(other, changes=changes, **parts)))  # type: ignore[arg-type]


def change_rows(made: Plan, known: list[Record]) -> list[tuple[str, ...]]:
    table = all_tables(summarise(made, known))[0]
    assert table.title == "changes of each arm to its reference"
    return list(table.rows)


def test_all_that_an_arm_changes_is_in_the_first_table() -> None:
    known = [record for record in records() if record.arm in ("baseline", "good")]
    assert change_rows(study(), known) == [
        ("baseline", "-", "-"),
        ("good", "baseline", "model.gate true -> false; train.steps 100 -> 500"),
    ]


def test_what_searches_chose_is_told_and_what_the_arm_does_not_search() -> None:
    settings = {"model": {"x": 0.5}, "train": {"lr": 0.1}}
    made = study((Change("model.x", 0.2, 0.5),), settings=settings, dropped=("model.x", "model.gone"))
    baseline, other = made.arms
    made = replace(
        made,
        arms=(replace(baseline, space=SPACE), replace(other, space=Space(SPACE.dimensions[:1]))),
    )
    chosen = {"baseline": {"train.lr": 0.3, "model.x": 0.75}, "good": {"train.lr": 0.4}}
    known = [replace(record, assignment=chosen[record.arm]) for record in records() if record.arm in chosen]
    assert change_rows(made, known) == [
        ("baseline", "-", "-", "train.lr = 0.3; model.x = 0.75", "-"),
        ("good", "baseline", "model.x 0.75 -> 0.5", "train.lr = 0.4", "model.x = 0.5; model.gone"),
    ]
    assert change_rows(made, [])[1][3] == "nothing chosen"


def test_long_lists_and_values_are_cut_with_a_count_and_whole_in_json() -> None:
    many = tuple(Change(f"train.field_{number}", 0, "y" * 60) for number in range(9))
    made = study(many)
    text = change_rows(made, [])[1][2]
    assert text.endswith("; and 3 more fields")
    assert text.count("->") == 6
    assert "y" * 39 + "…" in text
    change = summarise(made, []).changes[1]
    assert has_omissions(change)
    assert full_change_lines(change)[8] == f"train.field_8: 0 -> {'y' * 60}", "the page unfolds all of them"
    held = json.loads(as_json(summarise(made, [])))["changes"][1]["changes"]
    assert [row["after"] for row in held] == ["y" * 60] * 9


def test_a_change_beyond_six_digits_shows() -> None:
    arm = ArmChanges("a", "b", (Change("lr", 0.12345678, 0.12345679),), {}, (), {})
    assert rows_of((arm,))[0][2] == "lr 0.12345678 -> 0.12345679"
    assert full_change_lines(arm) == ("lr: 0.12345678 -> 0.12345679",)
