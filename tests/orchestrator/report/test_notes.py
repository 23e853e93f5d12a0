"""What a report says of its own numbers."""

from dataclasses import replace

import pytest

from orchestrator.report.notes import notes, notices
from orchestrator.report.tables import costs
from orchestrator.spec.section import Objective
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


def alike(arms: dict[str, str], value: float | None = None, seeds: int = 4) -> list[str]:
    """What is told where each of `arms` measured what the other named did; all of them `value`, if given."""
    made = study(3, seeds, 0, readings=())
    measured = {(each.arm, each.seed): each.last for each in made.records}

    def same(each):
        last = measured[arms.get(each.arm, each.arm), each.seed]
        given = {} if value is None else {"near-iid/accuracy": value}
        return replace(each, last=replace(last, metrics={**last.metrics, **given}))

    return notices(replace(made, records=tuple(map(same, made.records))).report())


def test_arms_that_no_seed_tells_apart_are_told():
    [told] = alike({"arm-2": "arm-0"})
    assert told.startswith(
        "arm-0 and arm-2 measured the very same near-iid/accuracy in each of 4 seeds, which"
    )
    [told] = alike({"arm-1": "arm-0", "arm-2": "arm-0"})
    assert told.startswith("arm-0, arm-1 and arm-2 measured")


def test_arms_that_differ_or_whose_seeds_do_not_are_not():
    assert alike({}) == []
    assert alike({"arm-1": "arm-0"}, value=1.0) == []
    assert alike({"arm-1": "arm-0"}, seeds=2) == []


OBJECTIVES = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))


def test_of_several_objectives_it_is_said_which_point_was_confirmed():
    [note] = [each for each in notes(study(2, 4, 4, objectives=OBJECTIVES).report()) if "front" in each]
    assert note.startswith(
        "The search had valid/accuracy and valid/depth for objectives. Of the front of each"
    )
    assert "best in valid/accuracy was confirmed, whatever it pays in valid/depth" in note
    assert not any("objectives" in each for each in notes(study(2, 4, 4).report()))


def test_tables_of_intervals_that_are_not_corrected_say_so():
    made = study(2, 4, 0)
    titles = [each.title for each in costs(made.report()) if each.title.startswith("exploratory")]
    assert titles
    assert all("95% interval of each alone" in each for each in titles)


@pytest.mark.parametrize("trials", [4, 0])
def test_where_arms_were_searched_it_is_said_that_seeds_do_not_repeat_the_search(trials):
    found = [each for each in notes(study(2, 4, trials).report()) if "was searched once" in each]
    assert len(found) == (trials > 0)
