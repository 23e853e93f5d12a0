"""Reports of repeated searches: intervals use repeats as units, and controls are separate."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.winner import find_winner
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.studies import with_metrics
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

OUTCOME = "test/score"
NUM_REPEATS = 4
ANSWER_PLAN = AnswerPlan((OUTCOME,), None, 0.05, 1)


def score_of(arm, repeat, seed, plan):
    index = plan.confirm.seeds.index(seed)
    shift = {"arm-0": 0.0, "arm-1": 1.0 + 0.1 * math.sin(repeat), "control-0": 0.2 * math.cos(3 * repeat)}
    return shift[arm] + math.sin(index) + 0.01 * index * (arm == "arm-1")


def make_repeat_record(plan, trial, outcome=OutcomeKind.FINISHED):
    metrics = {"valid/score": float(trial.number + 10 * trial.repeat)}
    if trial.phase == "confirm":
        metrics[OUTCOME] = score_of(trial.arm, trial.repeat, trial.seed, plan)
    last = Measurement(1, 1.0, metrics)
    assignment = {"model.x": trial.repeat / 10 + (0 if trial.phase == "confirm" else trial.number)}
    arm = plan.arm(trial.arm)
    settings = {**arm.settings, "model": {**arm.settings["model"], "x": assignment["model.x"]}}
    return Record(
        trial_id=trial.trial_id,
        sweep=plan.name,
        arm=trial.arm,
        phase=trial.phase,
        number=trial.number,
        seed=trial.seed,
        rank=trial.rank,
        assignment=assignment,
        overrides={},
        settings=settings,
        outcome=outcome,
        reason="ended",
        last=last,
        best=last,
        started_at=0.0,
        ended_at=1.0,
        attempts=1,
        repeat=trial.repeat,
    )


@pytest.fixture
def plan_and_records():
    plan = replace(repeated_plan(NUM_REPEATS, controls=1), answer=ANSWER_PLAN)
    return plan, [make_repeat_record(plan, trial) for trial in plan.trials]


def test_interval_uses_the_means_of_repeats(plan_and_records):
    plan, records = plan_and_records
    report = summarise(plan, records)
    [verdict] = report.verdicts
    differences = [
        fmean(score_of("arm-1", repeat, seed, plan) - score_of("arm-0", repeat, seed, plan) for seed in seeds)
        for repeat, seeds in report.unit_seeds
    ]
    half_width = stats.t.ppf(0.975, NUM_REPEATS - 1) * stdev(differences) / math.sqrt(NUM_REPEATS)
    assert verdict.difference.n == NUM_REPEATS
    assert verdict.difference.mean == pytest.approx(fmean(differences))
    assert verdict.difference.high == pytest.approx(fmean(differences) + half_width)
    assert verdict.seeds.startswith("4 of 4 repeats")
    assert (verdict.kind, verdict.text, verdict.covers) == ("better", "better", "repeated searches")
    cell = report.cell("arm-0", OUTCOME)
    assert (cell.estimate.n, len(cell.by_seed), len(cell.by_unit)) == (4, 8, 4)
    assert (report.unit, report.repeats) == ("repeat", NUM_REPEATS)


def test_failed_seed_excludes_its_repeat(plan_and_records):
    plan, records = plan_and_records
    failed_record = next(record for record in records if record.phase == "confirm" and record.arm == "arm-1")
    records = [
        replace(record, outcome=OutcomeKind.CRASHED) if record is failed_record else record
        for record in records
    ]
    report = summarise(plan, records)
    [verdict] = report.verdicts
    assert (verdict.kind, verdict.p, verdict.difference.n) == ("undecided", None, 3)
    assert verdict.seeds.startswith("3 of 4 repeats")
    assert report.finished_text("arm-1").startswith("3 of 4 ")


def test_verdict_names_a_single_search():
    plan = replace(repeated_plan(1, (101, 102, 103, 104)), answer=ANSWER_PLAN)
    report = summarise(plan, [make_repeat_record(plan, trial) for trial in plan.trials])
    [verdict] = report.verdicts
    assert (verdict.kind, verdict.covers) == ("better", "one search")


def test_controls_have_no_verdict_and_never_win(plan_and_records):
    plan, records = plan_and_records
    records_with_better_control = [
        with_metrics(record, {OUTCOME: 99.0})
        if (record.arm, record.phase) == ("control-0", "confirm")
        else record
        for record in records
    ]
    report = summarise(plan, records)
    assert [verdict.arm for verdict in report.verdicts] == ["arm-1"]
    [control] = report.controls
    assert (control.arm, control.level, control.difference.n) == ("control-0", 0.05, NUM_REPEATS)
    assert (report.control_rate.decided, report.control_rate.compared) == (0, 1)
    assert report.control_rate.high == pytest.approx(0.975), "1 - 0.025 ** (1 / 1)"
    assert (
        find_winner(plan, records_with_better_control, summarise(plan, records_with_better_control)).arm
        == "arm-1"
    )


def test_winner_has_the_params_of_the_best_repeat(plan_and_records):
    plan, records = plan_and_records
    winner = find_winner(plan, records, summarise(plan, records))
    assert (winner.arm, winner.repeat, len(winner.records)) == ("arm-1", NUM_REPEATS - 1, 2)
    assert winner.settings["model"]["x"] == pytest.approx((NUM_REPEATS - 1) / 10)
