"""Warnings about verdicts of sweeps that were extended after the first results."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Extension
from orchestrator.report.caveats.notes import notes, verdict_lines
from orchestrator.report.comparisons.answer_summary import answer_summary
from orchestrator.report.results.extensions import exploratory_reason
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import DECISION_TAG, arm_tags
from tests.orchestrator.report.results.test_winner import SCORE, confirm_scores, make_records
from tests.support.specs.plans import make_plan

ANSWER_PLAN = AnswerPlan(("test/score",), None, 0.05, 1)
SEEDS = (1, 2, 3, 4)


def build_plan(*extensions):
    """Return a plan with two arms; the second is compared with the first."""
    two_arm_plan = make_plan(2, trials_per_arm=0, seeds=SEEDS)
    arms = (two_arm_plan.arms[0], replace(two_arm_plan.arms[1], reference="arm-0"))
    return replace(
        two_arm_plan,
        arms=arms,
        metrics=(SCORE,),
        answer=ANSWER_PLAN,
        trainable="own:train",
        extended=extensions,
    )


COMPARED_PAIRS = [("arm-1", "arm-0")]
"""An arm and its reference."""


def make_extension(*, arms=("arm-0", "arm-1"), seeds=SEEDS[:2], ended_seeds=None):
    change = "confirm.seeds: [1, 2] -> [1, 2, 3, 4]"
    return Extension(86400.0, "haltsweep extend one", "before", (change,), arms, seeds, ended_seeds or {})


BETTER_SCORES = confirm_scores((0.1, 0.11, 0.12, 0.13), (0.9, 0.92, 0.94, 0.91))


def extended_verdict(*extensions):
    plan = build_plan(*extensions)
    report = summarise(plan, make_records(plan, BETTER_SCORES))
    return report, report.verdict("arm-1")


@pytest.mark.parametrize("ended_seeds", [{"arm-1": 2}, {"arm-0": 2}])
def test_seeds_added_after_results_make_the_verdict_exploratory(ended_seeds):
    report, verdict = extended_verdict(make_extension(ended_seeds=ended_seeds))
    assert (verdict.kind, verdict.exploratory, " 2 " in verdict.text) == ("better", True, True)
    assert verdict.text in verdict.line
    assert any(line == f"exploratory: {verdict.line}" for line in verdict_lines(report))
    assert "(better, exploratory)" in answer_summary(report)
    assert arm_tags(report)["arm-1"][DECISION_TAG] == "better, exploratory"
    _, looks_text = report.extensions
    assert re.search("2 looks .*0.05", looks_text)
    assert set(report.extensions) <= set(notes(report))


def test_seeds_added_before_results_do_not_change_the_verdict():
    report, verdict = extended_verdict(make_extension())
    assert verdict.text == "better"
    assert len(report.extensions) == 1


def test_arm_added_after_results_of_its_reference_is_exploratory():
    plan = build_plan(make_extension(arms=("arm-0",), seeds=SEEDS, ended_seeds={"arm-0": 4}))
    assert re.search("exploratory: .* 4 seeds of arm-0 ", exploratory_reason(plan, COMPARED_PAIRS))
