"""A report of a study with looks says what was certain at a look, and leaves it so."""

from dataclasses import replace

import pytest

from orchestrator.plan.types import ConfirmPlan
from orchestrator.report.comparisons.answers import early_verdicts
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.tables import screen_table
from orchestrator.report.writers.write import as_markdown_report
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.comparisons.test_answers import METRICS, SEEDS, plan, record

LOOKING = plan(confirm=ConfirmPlan(1, SEEDS, ("iid", "far"), "decided"))
SKIP = {"last": None, "reason": "good ended at the look after 4 of 8 seeds"}


def whole():
    """All seeds of all arms."""
    return [record(arm.name, seed) for arm in LOOKING.arms for seed in SEEDS]


def as_run():
    """What of these would have run: nothing of an arm after the look that decided it."""
    after = {
        name: SEEDS[each.seeds :]
        for name, each in early_verdicts(LOOKING, SeedResults(whole(), METRICS)).items()
    }
    return [
        replace(each, outcome=OutcomeKind.SKIPPED, **SKIP) if each.seed in after.get(each.arm, ()) else each
        for each in whole()
    ]


def test_some_arms_are_decided_and_found_again_from_what_has_run():
    found = early_verdicts(LOOKING, SeedResults(whole(), METRICS))
    assert {"good", "bad"} <= set(found)
    assert all(3 <= each.seeds < 8 for each in found.values())
    assert early_verdicts(LOOKING, SeedResults(as_run(), METRICS)) == found


def test_the_verdict_the_interval_and_p_are_those_of_the_look():
    report = summarise(LOOKING, as_run())
    found = early_verdicts(LOOKING, SeedResults(as_run(), METRICS))["good"]
    (verdict,) = (each for each in report.verdicts if each.arm == "good")
    assert (verdict.kind, verdict.looked) == ("better", True)
    assert f"ended after {found.seeds} of 8 seeds, interval at level 0.0025" in verdict.line
    assert verdict.p == found.found["iid/accuracy"].p <= 0.0025
    effect = report.effect("good", "iid/accuracy")
    assert (effect.estimate, effect.p) == (verdict.difference, verdict.p)
    assert "Arms were looked at after each round of seeds." in as_markdown_report(report, [])
    rows = {row[0]: row[-1] for row in screen_table(report).rows}
    assert rows["good"].endswith(f"(ended after {found.seeds} of 8 seeds, interval at level 0.0025)")
    assert rows["baseline"] == ""


@pytest.mark.parametrize("last", SEEDS[6:])
def test_early_verdict_ignores_later_seeds_of_the_baseline(last):
    failed = [
        replace(each, outcome=OutcomeKind.DIVERGED, last=None, reason="nan")
        if (each.arm, each.seed) == ("baseline", last)
        else each
        for each in as_run()
    ]
    missing = [each for each in as_run() if (each.arm, each.seed) != ("baseline", last)]
    for records in (failed, missing):
        said = {each.arm: each.kind for each in summarise(LOOKING, records).verdicts}
        assert said["good"] == "better"
        assert said["bad"] == "worse"
