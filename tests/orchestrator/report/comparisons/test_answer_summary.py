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
    for each in (verdict for verdict in report.verdicts if verdict.kind in DIFFERENT):
        verb = "raises" if each.difference.mean > 0 else "lowers"
        assert any(text.startswith(each.arm) and f"{verb} {each.metric}" in text for text in told)
    opened = tuple(
        verdict if verdict.kind in DIFFERENT else replace(verdict, kind="undecided")
        for verdict in report.verdicts
    )
    for found in (report, replace(report, verdicts=opened)):
        others = [verdict for verdict in found.verdicts if verdict.kind not in DIFFERENT]
        assert others
        *_, last = sentences(found)
        assert all(other.arm in last and other.metric in last for other in others)
        assert "raises" not in last
        assert "lowers" not in last


def test_withheld_verdicts_are_not_summarised():
    report = whole()
    withheld = tuple(
        replace(verdict, kind="undecided", withheld="different-test-sets") for verdict in report.verdicts
    )
    assert answer_summary(replace(report, verdicts=withheld)) == ""


def test_no_summary_without_measurements():
    report = whole()
    nothing = tuple(replace(verdict, kind="undecided", difference=None) for verdict in report.verdicts)
    assert answer_summary(replace(report, verdicts=nothing)) == ""
    assert answer_summary(replace(report, verdicts=())) == ""
