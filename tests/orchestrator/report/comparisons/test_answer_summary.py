"""The sentence before the answer names what is decided, and claims nothing else."""

from dataclasses import replace

from orchestrator.report.comparisons.answer_summary import DIFFERENT, answer_summary
from orchestrator.report.results.summary import summarise
from tests.orchestrator.report.comparisons.test_answers import plan, records


def whole():
    return summarise(plan(), records())


def sentences(report, reasons=None):
    return answer_summary(report, reasons).split(". ")


def test_each_difference_is_told_with_its_direction_and_the_rest_as_not_shown():
    report = whole()
    told = sentences(report)
    for each in (each for each in report.verdicts if each.kind in DIFFERENT):
        verb = "raises" if each.difference.mean > 0 else "lowers"
        assert any(text.startswith(each.arm) and f"{verb} {each.metric}" in text for text in told)
    opened = tuple(
        each if each.kind in DIFFERENT else replace(each, kind="undecided") for each in report.verdicts
    )
    for found in (report, replace(report, verdicts=opened)):
        others = [each for each in found.verdicts if each.kind not in DIFFERENT]
        assert others
        *_, last = sentences(found)
        assert all(each.arm in last and each.metric in last for each in others)
        assert "raises" not in last
        assert "lowers" not in last


def test_withheld_verdicts_are_not_summarised():
    report = whole()
    withheld = tuple(
        replace(each, kind="undecided", withheld="different-test-sets") for each in report.verdicts
    )
    assert answer_summary(replace(report, verdicts=withheld)) == ""


def test_no_summary_without_measurements():
    report = whole()
    nothing = tuple(replace(each, kind="undecided", difference=None) for each in report.verdicts)
    assert answer_summary(replace(report, verdicts=nothing)) == ""
    assert answer_summary(replace(report, verdicts=())) == ""
