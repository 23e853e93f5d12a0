"""What a report says of its own numbers."""

from dataclasses import replace

import pytest

from orchestrator.report.notes import notes
from tests.orchestrator.report.studies import study


def told(values: dict[str, float]) -> list[str]:
    """Notes on metrics that lie beyond what is declared, where arm-1 has `values`."""
    made = study(2, 4, 0, readings=())
    records = [
        replace(each, last=replace(each.last, metrics=each.last.metrics | values))
        if each.arm == "arm-1" and each.last
        else each
        for each in made.records
    ]
    found = notes(replace(made, records=tuple(records)).report())
    return [each for each in found if "declared to be" in each]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"near-iid/accuracy": 97.5}, "arm-1: near-iid/accuracy is 97.5, but declared to be from 0 to 1."),
        ({"near-iid/loss": -0.25}, "arm-1: near-iid/loss is -0.25, but declared to be at least 0."),
    ],
)
def test_values_that_cannot_be_are_told(values, words):
    [note] = told(values)
    assert note.startswith(words)


@pytest.mark.parametrize("value", [0.0, 1.0, 1.0 + 1e-9])
def test_values_that_can_be_are_not(value):
    assert told({"near-iid/accuracy": value}) == []
