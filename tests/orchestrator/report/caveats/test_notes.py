"""What a report says of its own numbers."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import Change
from orchestrator.report.caveats.notes import notes, verdict_lines
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.arm_changes import ArmChanges
from tests.orchestrator.report.studies import study


def reported(values: dict[str, float]) -> list[str]:
    """Notes on metrics that lie beyond what is declared, where arm-1 has `values`."""
    made = study(2, 4, 0, thresholds=())
    records = [
        replace(record, last=replace(record.last, metrics=record.last.metrics | values))
        if record.arm == "arm-1" and record.last
        else record
        for record in made.records
    ]
    found = notes(replace(made, records=tuple(records)).report())
    return [line for line in found if "declared to be" in line]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"near-iid/accuracy": 97.5}, "arm-1: near-iid/accuracy is 97.5, but declared to be from 0 to 1."),
        ({"near-iid/loss": -0.25}, "arm-1: near-iid/loss is -0.25, but declared to be at least 0."),
    ],
)
def test_values_outside_of_the_declared_range_are_noted(values, words):
    [note] = reported(values)
    assert note.startswith(words)


@pytest.mark.parametrize("value", [0.0, 1.0, 1.0 + 1e-9])
def test_values_inside_of_the_declared_range_are_not_noted(value):
    assert reported({"near-iid/accuracy": value}) == []


def alike(arms: dict[str, str], value: float | None = None, seeds: int = 4) -> list[str]:
    """What is told where each of `arms` measured what the other named did; all of them `value`, if given."""
    made = study(3, seeds, 0, thresholds=())
    measured = {(record.arm, record.seed): record.last for record in made.records}

    def same(each):
        last = measured[arms.get(each.arm, each.arm), each.seed]
        given = {} if value is None else {"near-iid/accuracy": value}
        return replace(each, last=replace(last, metrics={**last.metrics, **given}))

    return warning_texts(replace(made, records=tuple(map(same, made.records))).report())


def test_identical_results_are_a_warning():
    [shown] = alike({"arm-2": "arm-0"})
    assert shown.startswith("arm-0 and arm-2 measured identical near-iid/accuracy in each of 4 seeds")
    [shown] = alike({"arm-1": "arm-0", "arm-2": "arm-0"})
    assert shown.startswith("arm-0, arm-1 and arm-2 measured")


@pytest.mark.parametrize(
    ("chosen", "changes", "expected"),
    [
        (
            {"x": 1, "lr": 0.5},
            (),
            "arm-1 and arm-0 were confirmed with identical settings",
        ),
        ({"x": 1, "lr": 0.4}, (), ""),
        ({"x": 0, "lr": 0.5}, (Change("x", 0, 1),), ""),
        ({"x": 1, "lr": 0.5}, (Change("y", 0, 1),), ""),
        ({}, (), ""),
    ],
)
def test_identical_configs_after_search_are_a_warning(chosen, changes, expected):
    searched = ArmChanges("arm-0", "", (), chosen, ("x", "lr"), {})
    arm = ArmChanges("arm-1", "arm-0", changes, {"lr": 0.5}, ("lr",), {"x": 1})
    made = study(3, 4, 0, thresholds=())
    by_seed = {record.seed: record for record in made.records if record.arm == "arm-0"}
    alike = [
        replace(record, last=by_seed[record.seed].last) if record.arm == "arm-1" else record
        for record in made.records
    ]
    report = replace(replace(made, records=tuple(alike)).report(), changes=(searched, arm))
    [said] = warning_texts(report)
    assert said.startswith(expected or "arm-0 and arm-1 measured identical")
    assert ("x = 1, lr = 0.5." in said) == bool(expected)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            0.999,
            "within 0.01 of 1 in near-iid/accuracy, the greatest possible value",
        ),
        (0.001, "within 0.01 of 0 in near-iid/accuracy, the least possible value"),
        (0.101, "within 0.01 of 0.1 in near-iid/accuracy, the value without any learning"),
        (0.9, ""),
    ],
)
def test_no_difference_at_a_bound_is_a_warning(at, words):
    made = study(3, 4, 0, thresholds=())

    def moved(each):
        off = 0.2 if each.arm == "arm-2" else 1e-4 * ((each.seed + len(each.trial_id + each.arm)) % 3)
        value = at + (off if at < 0.5 else -off) + 1e-5 * (each.arm == "arm-1") * (each.seed % 2)
        metrics = each.last.metrics | {"near-iid/accuracy": value}
        return replace(each, last=replace(each.last, metrics=metrics))

    report = replace(made, records=tuple(map(moved, made.records))).report()
    assert [verdict.text for verdict in report.verdicts][:1] == ["no difference larger than 0.01"]
    shown = [
        warning_text
        for warning_text in warning_texts(report)
        if warning_text.startswith("arm-0 and arm-1 are")
    ]
    assert len(shown) == bool(words)
    assert words in "".join(shown)


def test_differing_arms_or_constant_seeds_are_no_warning():
    assert alike({}) == []
    assert alike({"arm-1": "arm-0"}, value=1.0) == []
    assert alike({"arm-1": "arm-0"}, seeds=2) == []


@pytest.mark.parametrize(("trials", "decided"), [(4, True), (0, True), (4, False)])
def test_decided_verdicts_are_listed(trials, decided):
    report = study(2, 4, trials).report()
    kind = "worse" if decided else "undecided"
    verdicts = tuple(replace(verdict, kind=kind) for verdict in report.verdicts)
    lines = verdict_lines(replace(report, verdicts=verdicts))
    assert any(line.startswith("decided: ") for line in lines) == decided
