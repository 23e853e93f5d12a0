"""What a report says of its own numbers."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import Change
from orchestrator.report.caveats.notes import in_words, notes
from orchestrator.report.caveats.notices import notices
from orchestrator.report.results.arm_changes import ArmChanges
from orchestrator.report.writers.page import page
from orchestrator.report.writers.tables import costs, headline
from orchestrator.report.writers.write import markdown
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import study


def reported(values: dict[str, float]) -> list[str]:
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
    [note] = reported(values)
    assert note.startswith(words)


@pytest.mark.parametrize("value", [0.0, 1.0, 1.0 + 1e-9])
def test_values_that_can_be_are_not(value):
    assert reported({"near-iid/accuracy": value}) == []


def words_of(seeds, arms=2):
    """All that a report says of a study with so many seeds, on its page, as text and on the screen."""
    made = study(arms, seeds, 0)
    report = made.report()
    return report, "\n".join((page(report, made.details()), markdown(report, ()), headline(report).title))


def test_of_one_seed_nothing_is_called_a_mean_over_seeds_or_said_to_have_an_interval():
    report, words = words_of(1)
    assert {each.low for each in (*report.estimates, *report.differences)} == {None}
    claims = re.compile(r"95%|over seeds|means? [\[(]|mean with|hold at once")
    assert [line for line in words.splitlines() if claims.search(line)] == []
    assert "the interval that the verdict rests on" not in words
    assert "Every value is of one seed: it has no interval and no p" in words
    assert "None of these has an interval or a p: nothing is claimed of any arm." in words
    assert "study: one seed of each arm" in words


def test_of_several_seeds_intervals_are_named():
    _, words = words_of(3)
    for shown in (
        "near-iid/accuracy, mean with 95% interval and every seed: ",
        "with the interval that the verdict rests on",
        "accuracy (share of right answers): mean [95% interval] (n)",
        "study: means with 95% intervals over seeds",
        "exploratory differences: paired mean [95% interval of each alone] (pairs)",
    ):
        assert shown in words


def test_seeds_that_all_gave_the_same_have_means_and_no_intervals():
    made = study(2, 4, 0, readings=())
    records = tuple(
        replace(each, last=replace(each.last, metrics=dict.fromkeys(each.last.metrics, 0.5)))
        for each in made.records
    )
    report = replace(made, records=records).report()
    words = markdown(report, ())
    assert "accuracy (share of right answers): mean (n)" in words
    assert "No mean has an interval" in words


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        (
            2,
            (
                "paired t of the one comparison, and agree",
                "the interval holds.",
                "; differences paired by seed, one comparison at",
            ),
        ),
        (
            3,
            (
                "paired t corrected by Bonferroni for all 2 comparisons",
                "all of these intervals hold at once",
                "; differences paired by seed, 2 comparisons together at level 0.05",
            ),
        ),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_comparisons_are_counted_in_words(arms, words):
    _, shown = words_of(4, arms)
    assert all(each in shown for each in words)


@pytest.mark.parametrize(
    ("seeds", "words"), [(1, "1 seed shows no collapse"), (3, "3 seeds show no collapse")]
)
def test_seeds_that_may_hide_a_collapse_are_counted_in_words(seeds, words):
    shown = " ".join(notes(study(2, seeds, 0, readings=()).report()))
    assert words in shown
    assert ("Look at the seeds one by one" in shown) == (seeds > 1)


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
    [shown] = alike({"arm-2": "arm-0"})
    assert shown.startswith(
        "arm-0 and arm-2 measured the very same near-iid/accuracy in each of 4 seeds, which"
    )
    [shown] = alike({"arm-1": "arm-0", "arm-2": "arm-0"})
    assert shown.startswith("arm-0, arm-1 and arm-2 measured")


@pytest.mark.parametrize(
    ("factor", "declared", "asked"),
    [(100.0, {}, True), (100.0, {"high": 1.0}, False), (20.0, {}, False), (-100.0, {}, True)],
)
def test_arms_that_may_not_report_in_one_unit_are_asked_for_it(factor, declared, asked):
    made = study(3, 4, 0, readings=())
    metric = "near-iid/accuracy"

    def scaled(each):
        if each.arm != "arm-1" or not each.last:
            return each
        metrics = each.last.metrics | {metric: factor * each.last.metrics[metric]}
        return replace(each, last=replace(each.last, metrics=metrics))

    report = replace(made, records=tuple(map(scaled, made.records))).report()
    known = replace(report.quantity(metric), low=None, high=None, floor=None)
    shown = notices(replace(report, quantities=(replace(known, **declared),)))
    start = "arm-1 and arm-0 are at least "
    assert [each for each in shown if each.startswith(start)] == (shown if asked else [])
    assert len(shown) == asked


@pytest.mark.parametrize(
    ("chosen", "changes", "expected"),
    [
        (
            {"x": 1, "lr": 0.5},
            (),
            "arm-1 and arm-0 were confirmed with the very same settings, for the search ",
        ),
        ({"x": 1, "lr": 0.4}, (), ""),
        ({"x": 0, "lr": 0.5}, (Change("x", 0, 1),), ""),
        ({"x": 1, "lr": 0.5}, (Change("y", 0, 1),), ""),
        ({}, (), ""),
    ],
)
def test_an_arm_that_the_search_made_its_reference_is_told(chosen, changes, expected):
    searched = ArmChanges("arm-0", "", (), chosen, ("x", "lr"), {})
    arm = ArmChanges("arm-1", "arm-0", changes, {"lr": 0.5}, ("lr",), {"x": 1})
    made = study(3, 4, 0, readings=())
    by_seed = {each.seed: each for each in made.records if each.arm == "arm-0"}
    alike = [
        replace(each, last=by_seed[each.seed].last) if each.arm == "arm-1" else each for each in made.records
    ]
    report = replace(replace(made, records=tuple(alike)).report(), changes=(searched, arm))
    [said] = notices(report)
    assert said.startswith(expected or "arm-0 and arm-1 measured the very same")
    assert ("x = 1, lr = 0.5. One system was run twice" in said) == bool(expected)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            0.999,
            "within 0.01 of 1 in near-iid/accuracy, the greatest value there can be: no difference larger",
        ),
        (0.001, "within 0.01 of 0 in near-iid/accuracy, the least value there can be: no difference larger"),
        (0.101, "within 0.01 of 0.1 in near-iid/accuracy, what needs no learning: arms that have learnt"),
        (0.9, ""),
    ],
)
def test_no_difference_where_none_could_show_says_so(at, words):
    made = study(3, 4, 0, readings=())

    def moved(each):
        off = 0.2 if each.arm == "arm-2" else 1e-4 * ((each.seed + len(each.trial_id + each.arm)) % 3)
        value = at + (off if at < 0.5 else -off) + 1e-5 * (each.arm == "arm-1") * (each.seed % 2)
        metrics = each.last.metrics | {"near-iid/accuracy": value}
        return replace(each, last=replace(each.last, metrics=metrics))

    report = replace(made, records=tuple(map(moved, made.records))).report()
    assert [each.text for each in report.verdicts][:1] == ["no difference larger than 0.01"]
    shown = [each for each in notices(report) if each.startswith("arm-0 and arm-1 are")]
    assert len(shown) == bool(words)
    assert words in "".join(shown)


def test_arms_that_differ_or_whose_seeds_do_not_are_not():
    assert alike({}) == []
    assert alike({"arm-1": "arm-0"}, value=1.0) == []
    assert alike({"arm-1": "arm-0"}, seeds=2) == []


def test_arms_whose_search_trials_failed_are_told():
    made = study(2, 4, 8, readings=())
    records = [
        replace(each, outcome=OutcomeKind.FINISHED)
        if each.phase == "search" and (each.arm == "arm-0" or each.outcome is OutcomeKind.PRUNED)
        else each
        for each in made.records
    ]
    shown = [each for each in notes(replace(made, records=tuple(records)).report()) if "tuned" in each]
    assert [each.rpartition(": ")[2] for each in shown] == ["arm-1, 1 trial of 8."]
    whole = [replace(each, outcome=OutcomeKind.FINISHED) for each in made.records]
    assert not [each for each in notes(replace(made, records=tuple(whole)).report()) if "tuned" in each]


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


@pytest.mark.parametrize(("trials", "words"), [(4, "too good, for it chose"), (0, "too good where it chose")])
def test_only_a_search_is_said_to_have_chosen_by_the_split_valid(trials, words):
    [note] = [each for each in notes(study(2, 4, trials).report()) if "too good" in each]
    assert words in note


@pytest.mark.parametrize(("trials", "decided"), [(4, True), (0, True), (4, False)])
def test_what_is_decided_is_listed_as_such(trials, decided):
    report = study(2, 4, trials).report()
    kind = "worse" if decided else "undecided"
    verdicts = tuple(replace(each, kind=kind) for each in report.verdicts)
    lines = in_words(replace(report, verdicts=verdicts))
    assert any(line.startswith("decided: ") for line in lines) == decided


def test_means_over_assignments_are_told_only_where_there_are_some():
    made = study(2, 4, 4).report()
    several = replace(made, assignments=2)
    said = [
        [each[:24] for each in notices(report) if "best assignments of each arm" in each]
        for report in (made, several, replace(several, points=made.cells))
    ]
    assert said == [[], ["The 2 best assignments o"], []]
