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
        replace(record, outcome=OutcomeKind.SKIPPED, **SKIP)
        if record.seed in after.get(record.arm, ())
        else record
        for record in whole()
    ]


def test_some_arms_are_decided_and_found_again_from_what_has_run():
    found = early_verdicts(LOOKING, SeedResults(whole(), METRICS))
    assert {"good", "bad"} <= set(found)
    assert all(3 <= each.seeds < 8 for each in found.values())
    assert early_verdicts(LOOKING, SeedResults(as_run(), METRICS)) == found


def test_the_verdict_the_interval_and_p_are_those_of_the_look():
    report = summarise(LOOKING, as_run())
    found = early_verdicts(LOOKING, SeedResults(as_run(), METRICS))["good"]
    (verdict,) = (verdict for verdict in report.verdicts if verdict.arm == "good")
    assert (verdict.kind, verdict.looked) == ("better", True)
    assert f"ended after {found.seeds} of 8 seeds, interval at level 0.0025" in verdict.line
    assert verdict.p == found.found["iid/accuracy"].p <= 0.0025
    effect = report.effect("good", "iid/accuracy")
    assert (effect.estimate, effect.p) == (verdict.difference, verdict.p)
    assert "Arms were tested after each round of seeds." in as_markdown_report(report, [])
    rows = {row[0]: row[-1] for row in screen_table(report).rows}
    assert rows["good"].endswith(f"(ended after {found.seeds} of 8 seeds, interval at level 0.0025)")
    assert rows["baseline"] == ""


@pytest.mark.parametrize("last", SEEDS[6:])
def test_early_verdict_ignores_later_seeds_of_the_baseline(last):
    failed = [
        replace(record, outcome=OutcomeKind.DIVERGED, last=None, reason="nan")
        if (record.arm, record.seed) == ("baseline", last)
        else record
        for record in as_run()
    ]
    missing = [record for record in as_run() if (record.arm, record.seed) != ("baseline", last)]
    for records in (failed, missing):
        said = {verdict.arm: verdict.kind for verdict in summarise(LOOKING, records).verdicts}
        assert said["good"] == "better"
        assert said["bad"] == "worse"
