"""A report with interim looks repeats the verdict of the look that decided an arm."""

import re
from dataclasses import replace

from orchestrator.plan.types import ConfirmPlan
from orchestrator.report.comparisons.answers import early_verdicts
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.report.results.summary import summarise
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.comparisons.test_answers import (
    METRICS,
    SEEDS,
    make_study_plan,
    make_study_record,
)

LOOK_PLAN = make_study_plan(confirm=ConfirmPlan(1, SEEDS, ("iid", "far"), "decided"))
SKIP_FIELDS = {"last": None, "reason": "good ended at the look after 4 of 8 seeds"}


def make_complete_records():
    """Return records of all seeds of all arms."""
    return [make_study_record(arm.name, seed) for arm in LOOK_PLAN.arms for seed in SEEDS]


def make_stopped_records():
    """Return the records of a sweep that skips the seeds of an arm after its verdict."""
    skipped_seeds = {
        name: SEEDS[verdict.num_seeds :]
        for name, verdict in early_verdicts(LOOK_PLAN, SeedResults(make_complete_records(), METRICS)).items()
    }
    return [
        replace(record, outcome=OutcomeKind.SKIPPED, **SKIP_FIELDS)
        if record.seed in skipped_seeds.get(record.arm, ())
        else record
        for record in make_complete_records()
    ]


def test_early_verdicts_do_not_depend_on_skipped_seeds():
    verdicts = early_verdicts(LOOK_PLAN, SeedResults(make_complete_records(), METRICS))
    assert {"good", "bad"} <= set(verdicts)
    assert all(3 <= verdict.num_seeds < 8 for verdict in verdicts.values())
    assert early_verdicts(LOOK_PLAN, SeedResults(make_stopped_records(), METRICS)) == verdicts


def test_report_repeats_verdict_interval_and_p_of_the_look():
    report = summarise(LOOK_PLAN, make_stopped_records())
    look = early_verdicts(LOOK_PLAN, SeedResults(make_stopped_records(), METRICS))["good"]
    (verdict,) = (verdict for verdict in report.verdicts if verdict.arm == "good")
    assert (verdict.kind, verdict.looked) == ("better", True)
    assert re.search(f" {look.num_seeds} of 8 seeds, .*0.0025", verdict.line)
    assert verdict.p == look.comparisons["iid/accuracy"].p <= 0.0025
    effect = report.effect("good", "iid/accuracy")
    assert (effect.estimate, effect.p) == (verdict.difference, verdict.p)


def test_early_verdict_ignores_later_seeds_of_the_baseline():
    seed = SEEDS[6]
    records_with_failure = [
        replace(record, outcome=OutcomeKind.DIVERGED, last=None, reason="nan")
        if (record.arm, record.seed) == ("baseline", seed)
        else record
        for record in make_stopped_records()
    ]
    records_without_seed = [
        record for record in make_stopped_records() if (record.arm, record.seed) != ("baseline", seed)
    ]
    for records in (records_with_failure, records_without_seed):
        kinds = {verdict.arm: verdict.kind for verdict in summarise(LOOK_PLAN, records).verdicts}
        assert kinds["good"] == "better"
        assert kinds["bad"] == "worse"
