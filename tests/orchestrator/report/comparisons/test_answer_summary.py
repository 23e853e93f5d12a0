"""The sentence before the answer names the decided differences and claims nothing else."""

from dataclasses import replace

import pytest

from orchestrator.report.comparisons.answer_summary import DIFFERENCE_KINDS, answer_summary
from orchestrator.report.results.summary import summarise
from tests.orchestrator.report.comparisons.test_answers import make_study_plan, make_study_records


def build_report():
    return summarise(make_study_plan(), make_study_records())


def summary_sentences(report, reasons=None):
    return answer_summary(report, reasons).split(". ")


def test_summary_names_each_difference_and_lists_the_undecided_arms():
    report = build_report()
    decided_sentences = summary_sentences(report)
    for decided in (verdict for verdict in report.verdicts if verdict.kind in DIFFERENCE_KINDS):
        verb = "raises" if decided.difference.mean > 0 else "lowers"
        assert any(
            text.startswith(decided.arm) and f"{verb} {decided.metric}" in text for text in decided_sentences
        )
    undecided = [verdict for verdict in report.verdicts if verdict.kind not in DIFFERENCE_KINDS]
    assert undecided
    *_, last_sentence = decided_sentences
    assert all(verdict.arm in last_sentence and verdict.metric in last_sentence for verdict in undecided)
    assert "raises" not in last_sentence
    assert "lowers" not in last_sentence


@pytest.mark.parametrize("change", [{"withheld": "different-test-sets"}, {"difference": None}])
def test_undecided_verdicts_without_a_valid_difference_have_no_summary(change):
    report = build_report()
    verdicts = tuple(replace(verdict, kind="undecided", **change) for verdict in report.verdicts)
    assert answer_summary(replace(report, verdicts=verdicts)) == ""


def test_summary_says_of_waiting_comparisons_only_that_they_are_not_decided_yet():
    report = build_report()
    verdicts = tuple(replace(verdict, kind="undecided", waiting=2) for verdict in report.verdicts)
    (sentence,) = summary_sentences(replace(report, verdicts=verdicts))
    assert all(verdict.arm in sentence for verdict in verdicts)
