"""What is claimed of a sweep that was extended after results had been seen."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Extension
from orchestrator.report.caveats.notes import notes
from orchestrator.report.results.extensions import exploratory_reason
from orchestrator.report.results.summary import summarise
from tests.orchestrator.report.results.test_winner import SCORE, confirmed, played
from tests.support.specs.plans import make_plan

ANSWER = AnswerPlan(("test/score",), None, 0.05, 1)
SEEDS = (1, 2, 3, 4)


def plan(*extensions):
    """Two arms, the second compared with the first."""
    made = make_plan(2, trials_per_arm=0, seeds=SEEDS)
    arms = (made.arms[0], replace(made.arms[1], reference="arm-0"))
    return replace(
        made, arms=arms, metrics=(SCORE,), answer=ANSWER, trainable="own:train", extended=extensions
    )


PAIR = [("arm-1", "arm-0")]
"""An arm and what it is compared with."""


def added(*, arms=("arm-0", "arm-1"), seeds=SEEDS[:2], seen=None):
    change = "confirm.seeds: [1, 2] -> [1, 2, 3, 4]"
    return Extension(86400.0, "haltsweep extend one", "before", (change,), arms, seeds, seen or {})


BETTER = confirmed((0.1, 0.11, 0.12, 0.13), (0.9, 0.92, 0.94, 0.91))


def verdict(*extensions):
    made = plan(*extensions)
    report = summarise(made, played(made, BETTER))
    return report, report.verdict("arm-1")


def test_a_sweep_that_was_planned_so_from_the_start():
    report, found = verdict()
    assert found.text == "better"
    assert report.extensions == ()


@pytest.mark.parametrize("seen", [{"arm-1": 2}, {"arm-0": 2}])
def test_seeds_after_results_had_been_seen(seen):
    report, found = verdict(added(seen=seen))
    assert found.text == "better, exploratory: seeds added after 2 had been observed"
    assert found.text in found.line
    who = next(iter(seen))
    extension, looks = report.extensions
    assert extension == (
        "Extended on 1970-01-02 00:00 UTC by `haltsweep extend one`, after confirm seeds had ended "
        f"(2 of {who}): confirm.seeds: [1, 2] -> [1, 2, 3, 4]."
    )
    assert "2 looks at level 0.05" in looks
    assert looks.endswith("at most 0.1.")
    shown = notes(report)
    assert set(report.extensions) <= set(shown)
    (claims,) = (line for line in shown if line.startswith("Claims rest"))
    assert claims.endswith("when seeds or arms were added.")


def test_seeds_before_any_was_seen_are_as_if_planned():
    report, found = verdict(added())
    assert found.text == "better"
    assert len(report.extensions) == 1
    assert "before any confirm trial had ended" in report.extensions[0]
    assert any(note.endswith("With probability 0.95 the interval holds.") for note in notes(report))


def test_an_arm_against_a_reference_whose_values_were_known():
    found = plan(added(arms=("arm-0",), seeds=SEEDS, seen={"arm-0": 4}))
    assert exploratory_reason(found, PAIR) == ", exploratory: added after 4 seeds of arm-0 had been observed"


def test_an_undecided_arm_needs_no_mark():
    made = plan(added(seen={"arm-0": 2}))
    values = confirmed((0.1, 0.5, 0.9, 0.2), (0.2, 0.4, 0.8, 0.3))
    found = summarise(made, played(made, values)).verdict("arm-1")
    assert "exploratory" not in found.text
