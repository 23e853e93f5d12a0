"""Sweeps with several contexts: verdicts of each context and verdicts pooled over all contexts."""

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from orchestrator.errors import InputError
from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Plan
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_tags
from orchestrator.report.results.winner import find_winner
from orchestrator.report.writers.json_file import as_json
from orchestrator.trials import OutcomeKind, Record
from tests.orchestrator.report.comparisons.test_answers import (
    make_study_arm,
    make_study_plan,
    make_study_record,
)
from trainables.metrics import Metric
from trainables.protocol import Measurement

SEEDS = tuple(range(1, 9))
LEVELS = {"easy": 0.9, "hard": 0.3}
THIRD_LEVEL = 0.6
ACCURACY = Metric("accuracy", "max", floor_from="chance", shown=("table", "headline"))
OUTCOME = "test/accuracy"


def build_arm(label: str, context: str) -> Arm:
    """Return an arm of a context with the baseline of this context as reference."""
    name = f"{label}[dataset={context}]"
    return replace(
        make_study_arm(label),
        name=name,
        settings={"dataset": context, "arm": label},
        digest=name,
        reference="" if label == "baseline" else f"baseline[dataset={context}]",
        context={"dataset": context},
        name_in_context=label,
    )


def build_plan(*labels: str, is_pooled: bool = False, contexts: tuple[str, ...] = ("easy", "hard")) -> Plan:
    """Return a plan with the baseline and arms called `labels` in all contexts."""
    return make_study_plan(
        arms=tuple(build_arm(label, context) for label in ("baseline", *labels) for context in contexts),
        confirm=ConfirmPlan(1, SEEDS, ("test",)),
        answer=AnswerPlan((OUTCOME,), None, 0.05, len(labels) * (len(contexts) + is_pooled), is_pooled),
        metrics=(ACCURACY,),
    )


def build_record(name: str, seed: int, value: float) -> Record:
    measurement = Measurement(step=1, seconds=1.0, metrics={OUTCOME: value, "test/chance": round(value) / 2})
    record = make_study_record(name, 101)
    return replace(record, trial_id=f"{name}-{seed}", number=seed, seed=seed, last=measurement)


def build_records(
    plan: Plan, effects: dict[str, float], spreads: dict[str, float] | None = None, noise_seed: int = 0
) -> list[Record]:
    """Return records with the level of the context, the effect of the arm and noise."""
    rng = np.random.default_rng(noise_seed)
    trial_records = []
    for arm in plan.arms:
        context = str(arm.context["dataset"])
        spread = (spreads or {}).get(context, 0.01)
        value = LEVELS.get(context, THIRD_LEVEL) + effects.get(arm.name, 0.0)
        noise = rng.normal(size=len(SEEDS)) * spread
        trial_records += [
            build_record(arm.name, seed, value + error) for seed, error in zip(SEEDS, noise, strict=True)
        ]
    return trial_records


def verdict_kinds(report):
    return {verdict.arm: verdict.kind for verdict in (*report.verdicts, *report.pooled)}


def test_differences_between_contexts_decide_no_verdict():
    plan = build_plan("arm", is_pooled=True)
    kinds_of_draws = [
        verdict_kinds(summarise(plan, build_records(plan, {}, noise_seed=draw))) for draw in range(40)
    ]
    assert all(kinds.keys() == {"arm[dataset=easy]", "arm[dataset=hard]", "arm"} for kinds in kinds_of_draws)
    num_false_verdicts = sum(set(kinds.values()) != {"undecided"} for kinds in kinds_of_draws)
    assert num_false_verdicts <= stats.binom(40, 0.05).ppf(0.999), "the level is that of the family"


def test_effect_in_one_context_is_decided_only_there():
    plan = build_plan("arm", "idle")
    report = summarise(plan, build_records(plan, {"arm[dataset=hard]": -0.1}))
    assert verdict_kinds(report) == {
        "arm[dataset=easy]": "undecided",
        "arm[dataset=hard]": "worse",
        "idle[dataset=easy]": "undecided",
        "idle[dataset=hard]": "undecided",
    }
    decided_verdicts = [verdict for verdict in report.verdicts if verdict.kind != "undecided"]
    assert [(verdict.arm, verdict.reference, verdict.context) for verdict in decided_verdicts] == [
        ("arm[dataset=hard]", "baseline[dataset=hard]", "dataset=hard")
    ]
    assert not any(
        effect.arm.partition("[")[2] != effect.reference.partition("[")[2] for effect in report.effects
    )


def test_spread_of_one_context_widens_no_interval_of_another():
    """The lower bound of spreads, half their median, uses one context only."""
    plan = build_plan("arm", "idle", contexts=("easy", "hard", "odd"))
    effects = {"arm[dataset=easy]": 0.02}
    steady_report, noisy_report = (
        summarise(plan, build_records(plan, effects, {"easy": 0.001, "hard": spread, "odd": spread}))
        for spread in (0.001, 10.0)
    )
    for name in ("arm[dataset=easy]", "idle[dataset=easy]"):
        effect, noisy_effect = (report.effect(name, OUTCOME) for report in (steady_report, noisy_report))
        assert (effect.estimate, effect.p) == (noisy_effect.estimate, noisy_effect.p)
        assert not noisy_effect.spread_raised
    assert verdict_kinds(noisy_report)["arm[dataset=easy]"] == "better"


def test_pooled_verdict_averages_the_differences_of_each_seed():
    plan = build_plan("arm", "idle", is_pooled=True)
    report = summarise(plan, build_records(plan, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.05}))
    by_seed = {
        context: [
            dict(report.cell(f"arm[dataset={context}]", OUTCOME).by_seed)[seed]
            - dict(report.cell(f"baseline[dataset={context}]", OUTCOME).by_seed)[seed]
            for seed in SEEDS
        ]
        for context in LEVELS
    }
    means = np.mean([*by_seed.values()], axis=0)
    half_width = stats.t(7).ppf(1 - 0.05 / 12) * np.std(means, ddof=1) / sqrt(8)
    pooled_verdicts = {verdict.arm: verdict for verdict in report.pooled}
    assert pooled_verdicts.keys() == {"arm", "idle"}
    verdict = pooled_verdicts["arm"]
    assert (verdict.kind, verdict.reference, verdict.context) == ("worse", "baseline", "")
    assert verdict.pooled == ("arm[dataset=easy]", "arm[dataset=hard]")
    assert verdict.difference.n == 8
    assert verdict.difference.mean == pytest.approx(np.mean(means))
    assert (verdict.difference.low, verdict.difference.high) == pytest.approx(
        (np.mean(means) - half_width, np.mean(means) + half_width)
    )
    assert verdict.p == pytest.approx(6 * stats.ttest_1samp(means, 0).pvalue)
    assert pooled_verdicts["idle"].kind == "undecided"


def test_failed_seed_in_one_context_withholds_the_pooled_verdict():
    plan = build_plan("arm", is_pooled=True)
    trial_records = build_records(plan, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.1})
    records_with_failure = [
        replace(record, outcome=OutcomeKind.DIVERGED, last=None)
        if (record.arm, record.seed) == ("arm[dataset=hard]", 3)
        else record
        for record in trial_records
    ]
    report = summarise(plan, records_with_failure)
    assert verdict_kinds(report) == {
        "arm[dataset=easy]": "worse",
        "arm[dataset=hard]": "undecided",
        "arm": "undecided",
    }
    (pooled_verdict,) = report.pooled
    assert (pooled_verdict.p, pooled_verdict.difference.n) == (None, 7)
    assert pooled_verdict.seeds.startswith("7 of 8 ")


def test_each_context_has_its_floors():
    plan = build_plan("arm")
    report = summarise(plan, build_records(plan, {}))
    assert report.floors == {}
    assert [dict(context.floors) for context in report.contexts] == [{OUTCOME: 0.5}, {OUTCOME: 0.0}]


def test_json_and_tags_name_the_context():
    plan = build_plan("arm", is_pooled=True)
    report = summarise(plan, build_records(plan, {"arm[dataset=hard]": -0.1}))
    report_json = json.loads(as_json(report))
    assert [verdict["context"] for verdict in report_json["verdicts"]] == ["dataset=easy", "dataset=hard"]
    assert [row["arm"] for row in report_json["pooled"]] == ["arm"]
    tags = arm_tags(report)
    assert tags["arm[dataset=hard]"]["context"] == "dataset=hard"
    assert tags["arm[dataset=easy]"]["verdict.pooled"] == tags["arm[dataset=hard]"]["verdict.pooled"]
    assert "verdict.pooled" not in tags["baseline[dataset=easy]"]


def test_best_arm_belongs_to_one_context():
    plan = build_plan("arm")
    trial_records = build_records(plan, {"arm[dataset=hard]": 0.1})
    report = summarise(plan, trial_records)
    with pytest.raises(InputError, match=r"--context .*dataset=easy, dataset=hard"):
        find_winner(plan, trial_records, report)
    with pytest.raises(InputError, match="'hard'"):
        find_winner(plan, trial_records, report, context="hard")
    winner = find_winner(plan, trial_records, report, context="dataset=hard")
    assert (winner.arm, winner.num_arms) == ("arm[dataset=hard]", 2)
