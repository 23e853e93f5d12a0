"""Notes and warnings of a report about its numbers."""

import re
from dataclasses import replace

import pytest

from orchestrator.report.caveats.notes import OUT_OF_RANGE_NOTE, notes
from orchestrator.report.caveats.warning_texts import (
    AT_BOUND_CLAUSE,
    AT_FLOOR_CLAUSE,
    SAME_CONFIG_WARNING,
    warning_texts,
)
from orchestrator.report.results.arm_changes import ArmChanges
from tests.orchestrator.report.studies import make_study, with_metrics


def range_notes(values: dict[str, float]) -> list[str]:
    """Return the notes on values outside the declared range if arm-1 has `values`."""
    base_study = make_study(2, 4, 0, thresholds=())
    records = [
        with_metrics(record, values) if record.arm == "arm-1" and record.last else record
        for record in base_study.records
    ]
    lines = notes(replace(base_study, records=tuple(records)).report())
    return [line for line in lines if OUT_OF_RANGE_NOTE.partition("{range}")[2] in line]


def test_values_outside_of_the_declared_range_are_noted():
    [note] = range_notes({"near-iid/accuracy": 97.5})
    assert note.startswith("arm-1: near-iid/accuracy ")
    assert range_notes({"near-iid/accuracy": 1.0 + 1e-9}) == []


def equality_warnings(source_of_arm: dict[str, str], value: float | None = None, seeds: int = 4) -> list[str]:
    """Return the warnings if each arm has the measurements of its source, all equal to `value` if given."""
    base_study = make_study(3, seeds, 0, thresholds=())
    measurements = {(record.arm, record.seed): record.last for record in base_study.records}

    def copy_measurement(source_record):
        last = measurements[source_of_arm.get(source_record.arm, source_record.arm), source_record.seed]
        constant_metrics = {} if value is None else {"near-iid/accuracy": value}
        return with_metrics(replace(source_record, last=last), constant_metrics)

    return warning_texts(
        replace(base_study, records=tuple(map(copy_measurement, base_study.records))).report()
    )


def test_identical_results_are_a_warning():
    [warning] = equality_warnings({"arm-2": "arm-0"})
    assert re.match("arm-0 and arm-2 .*near-iid/accuracy .*4 seeds", warning)
    [warning] = equality_warnings({"arm-1": "arm-0", "arm-2": "arm-0"})
    assert warning.startswith("arm-0, arm-1 and arm-2 ")


@pytest.mark.parametrize("rate", [0.5, 0.4])
def test_identical_configs_after_search_are_a_warning(rate):
    searched_changes = ArmChanges("arm-0", "", (), {"x": 1, "lr": rate}, ("x", "lr"), {})
    arm_changes = ArmChanges("arm-1", "arm-0", (), {"lr": 0.5}, ("lr",), {"x": 1})
    base_study = make_study(3, 4, 0, thresholds=())
    by_seed = {record.seed: record for record in base_study.records if record.arm == "arm-0"}
    equal_records = [
        replace(record, last=by_seed[record.seed].last) if record.arm == "arm-1" else record
        for record in base_study.records
    ]
    report = replace(
        replace(base_study, records=tuple(equal_records)).report(), changes=(searched_changes, arm_changes)
    )
    [warning] = warning_texts(report)
    expected = SAME_CONFIG_WARNING.format(arm="arm-1", reference="arm-0", sets="x = 1, lr = 0.5")
    assert (warning == expected) == (rate == 0.5)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.999, AT_BOUND_CLAUSE.format(which="greatest")), (0.101, AT_FLOOR_CLAUSE), (0.9, "")],
)
def test_no_difference_at_a_bound_is_a_warning(level, expected):
    base_study = make_study(3, 4, 0, thresholds=())

    def move_to_level(record):
        offset = (
            0.2 if record.arm == "arm-2" else 1e-4 * ((record.seed + len(record.trial_id + record.arm)) % 3)
        )
        value = (
            level + (offset if level < 0.5 else -offset) + 1e-5 * (record.arm == "arm-1") * (record.seed % 2)
        )
        return with_metrics(record, {"near-iid/accuracy": value})

    report = replace(base_study, records=tuple(map(move_to_level, base_study.records))).report()
    assert report.verdicts[0].kind == "no difference"
    warnings = [text for text in warning_texts(report) if text.startswith("arm-0 and arm-1 ")]
    assert len(warnings) == bool(expected)
    assert expected in "".join(warnings)


def test_constant_seeds_are_a_warning_but_differing_arms_or_few_seeds_are_none():
    assert equality_warnings({}) == []
    [warning] = equality_warnings({"arm-1": "arm-0"}, value=1.0)
    assert warning.startswith("arm-1, arm-2: ")
    assert equality_warnings({"arm-1": "arm-0"}, seeds=2) == []
