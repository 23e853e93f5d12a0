"""Reports of repeated searches: the repeat is the unit of every interval, and controls are apart."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from orchestrator.plan.types import AnswerPlan
from orchestrator.report.results.summary import arm_tags, summarise
from orchestrator.report.results.winner import find_winner
from orchestrator.report.writers.json_file import as_json
from orchestrator.trials import OutcomeKind, Record
from tests.support.sweeps.repeated import repeated_plan
from trainables.protocol import Measurement

OUTCOME = "test/score"
REPEATS = 4
ANSWER = AnswerPlan((OUTCOME,), None, 0.05, 1)


def value(arm, repeat, seed, plan):
    place = plan.confirm.seeds.index(seed)
    shift = {"arm-0": 0.0, "arm-1": 1.0 + 0.1 * math.sin(repeat), "control-0": 0.2 * math.cos(3 * repeat)}
    return shift[arm] + math.sin(place) + 0.01 * place * (arm == "arm-1")


def record(plan, planned, outcome=OutcomeKind.FINISHED):
    metrics = {"valid/score": float(planned.number + 10 * planned.repeat)}
    if planned.phase == "confirm":
        metrics[OUTCOME] = value(planned.arm, planned.repeat, planned.seed, plan)
    last = Measurement(1, 1.0, metrics)
    assignment = {"model.x": planned.repeat / 10 + (0 if planned.phase == "confirm" else planned.number)}
    arm = plan.arm(planned.arm)
    settings = {**arm.settings, "model": {**arm.settings["model"], "x": assignment["model.x"]}}
    return Record(
        trial_id=planned.trial_id,
        sweep=plan.name,
        arm=planned.arm,
        phase=planned.phase,
        number=planned.number,
        seed=planned.seed,
        rank=planned.rank,
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
        repeat=planned.repeat,
    )


@pytest.fixture
def made():
    plan = replace(repeated_plan(REPEATS, controls=1), answer=ANSWER)
    return plan, [record(plan, trial) for trial in plan.trials]


def test_the_interval_is_of_repeats_with_the_mean_of_their_seeds(made):
    plan, records = made
    report = summarise(plan, records)
    [verdict] = report.verdicts
    differences = [
        fmean(value("arm-1", repeat, seed, plan) - value("arm-0", repeat, seed, plan) for seed in seeds)
        for repeat, seeds in report.unit_seeds
    ]
    half = stats.t.ppf(0.975, REPEATS - 1) * stdev(differences) / math.sqrt(REPEATS)
    assert verdict.difference.n == REPEATS
    assert verdict.difference.mean == pytest.approx(fmean(differences))
    assert verdict.difference.high == pytest.approx(fmean(differences) + half)
    assert verdict.seeds == "4 of 4 repeats finished"
    assert (verdict.kind, verdict.text, verdict.covers) == ("better", "better", "repeated searches")
    cell = report.cell("arm-0", OUTCOME)
    assert (cell.estimate.n, len(cell.by_seed), len(cell.by_unit)) == (4, 8, 4)
    assert (report.unit, report.repeats) == ("repeat", REPEATS)


def test_a_failed_seed_spoils_its_repeat(made):
    plan, records = made
    failed = next(record for record in records if record.phase == "confirm" and record.arm == "arm-1")
    records = [
        replace(record, outcome=OutcomeKind.CRASHED) if record is failed else record for record in records
    ]
    report = summarise(plan, records)
    [verdict] = report.verdicts
    assert (verdict.kind, verdict.p, verdict.difference.n) == ("undecided", None, 3)
    assert verdict.seeds == "3 of 4 repeats finished"
    assert report.finished("arm-1") == "3 of 4 finished"


def test_one_search_of_an_arm_is_told_in_the_verdict_itself():
    plan = replace(repeated_plan(1, (101, 102, 103, 104)), answer=ANSWER)
    report = summarise(plan, [record(plan, trial) for trial in plan.trials])
    [verdict] = report.verdicts
    assert verdict.text == "better at the settings found by one search"
    assert verdict.covers == "one search"
    assert verdict.text in verdict.line
    assert verdict.text in arm_tags(report)["arm-1"]["verdict"]
    assert '"covers": "one search"' in as_json(report)


def test_controls_are_apart_from_verdicts_and_never_win(made):
    plan, records = made
    better = [
        replace(record, last=replace(record.last, metrics={**record.last.metrics, OUTCOME: 99.0}))
        if (record.arm, record.phase) == ("control-0", "confirm")
        else record
        for record in records
    ]
    report = summarise(plan, records)
    assert [verdict.arm for verdict in report.verdicts] == ["arm-1"]
    [control] = report.controls
    assert (control.arm, control.level, control.difference.n) == ("control-0", 0.05, REPEATS)
    assert (report.control_rate.decided, report.control_rate.compared) == (0, 1)
    assert report.control_rate.high == pytest.approx(0.975), "1 - 0.025 ** (1 / 1)"
    assert control.line == arm_tags(report)["control-0"]["control"]
    assert find_winner(plan, better, summarise(plan, better)).arm == "arm-1"


def test_the_winner_has_the_settings_of_the_repeat_whose_search_found_most(made):
    plan, records = made
    found = find_winner(plan, records, summarise(plan, records))
    assert (found.arm, found.repeat, len(found.records)) == ("arm-1", REPEATS - 1, 2)
    assert found.settings["model"]["x"] == pytest.approx((REPEATS - 1) / 10)
