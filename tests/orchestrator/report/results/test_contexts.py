"""Arms in several contexts: compared inside each of them, and over all of them where that is asked for."""

import csv
import io
import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from orchestrator.errors import InputError
from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Extension, Plan
from orchestrator.report.caveats.notes import verdict_lines
from orchestrator.report.figures.interval_figures import outcome_panels
from orchestrator.report.results.contexts import split_by_context
from orchestrator.report.results.summary import arm_tags, summarise
from orchestrator.report.results.winner import find_winner
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import all_tables, screen_tables
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Space
from trainables.metrics import Metric
from trainables.protocol import Measurement

SEEDS = tuple(range(1, 9))
LEVELS = {"easy": 0.9, "hard": 0.3}
ODD = 0.6
ACCURACY = Metric("accuracy", "max", floor_from="chance", shown=("table", "headline"))
OUTCOME = "test/accuracy"


def arm(label: str, context: str, **parts: object) -> Arm:
    """An arm of a context, compared with the baseline there."""
    name = f"{label}[dataset={context}]"
    made = Arm(
        name=name,
        why="",
        settings={"dataset": context, "arm": label},
        changes=(),
        space=Space(),
        dropped=(),
        digest=name,
        reference="" if label == "baseline" else f"baseline[dataset={context}]",
        context={"dataset": context},
        name_in_context=label,
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def plan(*labels: str, pooled: bool = False, contexts: tuple[str, ...] = ("easy", "hard")) -> Plan:
    """A study of the baseline and arms called `labels` in all contexts."""
    return Plan(
        name="study",
        question="Does it?",
        spec_digest="0",
        arms=tuple(arm(label, context) for label in ("baseline", *labels) for context in contexts),
        search=None,
        confirm=ConfirmPlan(1, SEEDS, ("test",)),
        posthoc=(),
        resources=Resources(),
        wall_clock_hours=None,
        trials=(),
        answer=AnswerPlan((OUTCOME,), None, 0.05, len(labels) * (len(contexts) + pooled), pooled),
        metrics=(ACCURACY,),
    )


def record(name: str, seed: int, value: float, **parts: object) -> Record:
    made = Record(
        trial_id=f"{name}-{seed}",
        sweep="study",
        arm=name,
        phase="confirm",
        number=seed,
        seed=seed,
        rank=0,
        assignment={},
        overrides={},
        settings={},
        outcome=OutcomeKind.FINISHED,
        reason="",
        last=Measurement(step=1, seconds=1.0, metrics={OUTCOME: value, "test/chance": round(value) / 2}),
        best=None,
        started_at=0.0,
        ended_at=1.0,
        attempts=1,
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def records(
    made: Plan, effects: dict[str, float], spreads: dict[str, float] | None = None, draw: int = 0
) -> list[Record]:
    """Of every arm the level of its context, its effect, and noise by the spread of its context."""
    rng = np.random.default_rng(draw)
    found = []
    for each in made.arms:
        context = str(each.context["dataset"])
        spread = (spreads or {}).get(context, 0.01)
        value = LEVELS.get(context, ODD) + effects.get(each.name, 0.0)
        noise = rng.normal(size=len(SEEDS)) * spread
        found += [record(each.name, seed, value + one) for seed, one in zip(SEEDS, noise, strict=True)]
    return found


def kinds(report):
    return {each.arm: each.kind for each in (*report.verdicts, *report.pooled)}


def test_contexts_that_differ_by_far_decide_nothing_where_the_arm_has_no_effect():
    made = plan("arm", pooled=True)
    found = [kinds(summarise(made, records(made, {}, draw=draw))) for draw in range(40)]
    assert all(each.keys() == {"arm[dataset=easy]", "arm[dataset=hard]", "arm"} for each in found)
    wrong = sum(set(each.values()) != {"undecided"} for each in found)
    assert wrong <= stats.binom(40, 0.05).ppf(0.999), "the level is that of the family"


def test_an_effect_in_one_context_is_decided_there_alone():
    made = plan("arm", "idle")
    report = summarise(made, records(made, {"arm[dataset=hard]": -0.1}))
    assert kinds(report) == {
        "arm[dataset=easy]": "undecided",
        "arm[dataset=hard]": "worse",
        "idle[dataset=easy]": "undecided",
        "idle[dataset=hard]": "undecided",
    }
    decided = [verdict for verdict in report.verdicts if verdict.kind != "undecided"]
    assert [(verdict.arm, verdict.reference, verdict.context) for verdict in decided] == [
        ("arm[dataset=hard]", "baseline[dataset=hard]", "dataset=hard")
    ]
    assert {effect.reference for effect in report.effects} == {
        "baseline[dataset=easy]",
        "baseline[dataset=hard]",
    }
    assert not any(
        effect.arm.partition("[")[2] != effect.reference.partition("[")[2] for effect in report.effects
    )


def test_seeds_that_scatter_in_one_context_widen_no_interval_of_another():
    """Not even by the lower bound of spreads, which is half their median."""
    made = plan("arm", "idle", contexts=("easy", "hard", "odd"))
    effects = {"arm[dataset=easy]": 0.02}
    calm, wild = (
        summarise(made, records(made, effects, {"easy": 0.001, "hard": spread, "odd": spread}))
        for spread in (0.001, 10.0)
    )
    for name in ("arm[dataset=easy]", "idle[dataset=easy]"):
        effect, other = (each.effect(name, OUTCOME) for each in (calm, wild))
        assert (effect.estimate, effect.p) == (other.estimate, other.p)
        assert not other.spread_raised
    assert kinds(wild)["arm[dataset=easy]"] == "better"


def test_intervals_and_p_are_of_the_whole_family():
    made = plan("arm", pooled=True)
    report = summarise(made, records(made, {"arm[dataset=hard]": -0.1}))
    difference = [
        dict(report.cell("arm[dataset=hard]", OUTCOME).by_seed)[seed]
        - dict(report.cell("baseline[dataset=hard]", OUTCOME).by_seed)[seed]
        for seed in SEEDS
    ]
    half = stats.t(7).ppf(1 - 0.05 / 6) * np.std(difference, ddof=1) / sqrt(8)
    (verdict,) = (verdict for verdict in report.verdicts if verdict.arm == "arm[dataset=hard]")
    assert verdict.difference.low == pytest.approx(np.mean(difference) - half)
    assert verdict.p == pytest.approx(3 * stats.ttest_1samp(difference, 0).pvalue)


def test_over_all_contexts_the_sample_are_seeds_of_which_each_is_a_mean_of_differences():
    made = plan("arm", "idle", pooled=True)
    report = summarise(made, records(made, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.05}))
    by_seed = {
        context: [
            dict(report.cell(f"arm[dataset={context}]", OUTCOME).by_seed)[seed]
            - dict(report.cell(f"baseline[dataset={context}]", OUTCOME).by_seed)[seed]
            for seed in SEEDS
        ]
        for context in LEVELS
    }
    means = np.mean([*by_seed.values()], axis=0)
    half = stats.t(7).ppf(1 - 0.05 / 12) * np.std(means, ddof=1) / sqrt(8)
    pooled = {each.arm: each for each in report.pooled}
    assert pooled.keys() == {"arm", "idle"}
    found = pooled["arm"]
    assert (found.kind, found.reference, found.context) == ("worse", "baseline", "")
    assert found.pooled == ("arm[dataset=easy]", "arm[dataset=hard]")
    assert found.difference.n == 8
    assert found.difference.mean == pytest.approx(np.mean(means))
    assert (found.difference.low, found.difference.high) == pytest.approx(
        (np.mean(means) - half, np.mean(means) + half)
    )
    assert found.p == pytest.approx(6 * stats.ttest_1samp(means, 0).pvalue)
    assert pooled["idle"].kind == "undecided"


def test_a_seed_that_failed_in_one_context_withholds_the_verdict_over_all():
    made = plan("arm", pooled=True)
    known = records(made, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.1})
    failed = [
        replace(record, outcome=OutcomeKind.DIVERGED, last=None)
        if (record.arm, record.seed) == ("arm[dataset=hard]", 3)
        else record
        for record in known
    ]
    report = summarise(made, failed)
    assert kinds(report) == {
        "arm[dataset=easy]": "worse",
        "arm[dataset=hard]": "undecided",
        "arm": "undecided",
    }
    (pooled,) = report.pooled
    assert (pooled.p, pooled.difference.n) == (None, 7)
    assert pooled.seeds == "7 of 8 seeds finished in every context"


def test_a_seed_that_has_still_to_run_in_one_context_is_waited_for():
    made = plan("arm", pooled=True)
    open_trial = PlannedTrial("arm[dataset=hard]-8", "arm[dataset=hard]", "confirm", 7, 8, 0)
    made = replace(made, trials=(open_trial,))
    known = records(made, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.1})
    report = summarise(made, [trial for trial in known if trial.trial_id != open_trial.trial_id])
    (pooled,) = report.pooled
    assert (pooled.kind, pooled.outlooks, pooled.p) == ("undecided", (), None)


def test_seeds_that_change_nothing_in_one_context_say_nothing_of_chance_over_all():
    made = plan("arm", pooled=True)
    effects = {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.1}
    report = summarise(made, records(made, effects, {"easy": 0.01, "hard": 0.0}))
    assert kinds(report)["arm[dataset=easy]"] == "worse"
    (pooled,) = report.pooled
    assert (pooled.kind, pooled.p, pooled.difference.low) == ("undecided", None, None)


def test_contexts_that_are_added_after_results_make_the_pool_exploratory():
    before = tuple(f"{label}[dataset=easy]" for label in ("baseline", "arm"))
    seen = Extension(0.0, "haltsweep extend", "0", ("x",), before, SEEDS, dict.fromkeys(before, 8))
    made = replace(plan("arm", pooled=True), extended=(seen,))
    report = summarise(made, records(made, {"arm[dataset=easy]": -0.1, "arm[dataset=hard]": -0.1}))
    (pooled,) = report.pooled
    assert pooled.kind == "worse"
    assert "exploratory: contexts added" in pooled.text
    assert not any("exploratory" in verdict.text for verdict in report.verdicts)


def test_every_table_and_figure_of_results_is_of_one_context():
    made = plan("arm", pooled=True)
    report = summarise(made, records(made, {}))
    contexts = {context: f"[dataset={context}]" for context in LEVELS}
    results = [
        all_table
        for all_table in all_tables(report)
        if not all_table.title.startswith(("changes of each arm", "how trials ended", "mean over all"))
    ]
    assert len(results) >= 4
    for grid in results:
        inside = {context for context, mark in contexts.items() if any(mark in row[0] for row in grid.rows)}
        assert len(inside) == 1, grid.title
        assert grid.title.startswith(f"dataset={next(iter(inside))}: ")
    assert [screen_table.title.split(":")[0] for screen_table in screen_tables(report)] == [
        "dataset=easy",
        "dataset=hard",
        "mean over all contexts",
    ]
    panels = [*outcome_panels(report)]
    assert len({panel.name for panel in panels}) == len(panels) == 4
    for panel in panels:
        assert sum(mark in panel.label for mark in contexts.values()) == 1


def test_floors_are_those_of_the_context():
    made = plan("arm")
    report = summarise(made, records(made, {}))
    assert report.floors == {}
    assert [dict(context.floors) for context in report.contexts] == [{OUTCOME: 0.5}, {OUTCOME: 0.0}]
    assert [dict(part.floors)[OUTCOME] for _, part in split_by_context(report)] == [0.5, 0.0]
    rows = csv.DictReader(io.StringIO(as_csv(report)))
    floors = {row["arm"]: row["floor"] for row in rows if row["metric"] == OUTCOME}
    assert (floors["arm[dataset=easy]"], floors["arm[dataset=hard]"]) == ("0.5", "0.0")


def test_json_tags_and_words_tell_contexts():
    made = plan("arm", pooled=True)
    report = summarise(made, records(made, {"arm[dataset=hard]": -0.1}))
    values = json.loads(as_json(report))
    assert {verdict["arm"]: verdict["context"] for verdict in values["verdicts"]} == {
        "arm[dataset=easy]": "dataset=easy",
        "arm[dataset=hard]": "dataset=hard",
    }
    assert [row["arm"] for row in values["pooled"]] == ["arm"]
    assert [context["values"] for context in values["contexts"]] == [{"dataset": "easy"}, {"dataset": "hard"}]
    tags = arm_tags(report)
    assert tags["arm[dataset=hard]"]["context"] == "dataset=hard"
    assert "arm[dataset=hard]: worse" in tags["arm[dataset=hard]"]["verdict"]
    assert tags["arm[dataset=easy]"]["verdict.pooled"] == tags["arm[dataset=hard]"]["verdict.pooled"]
    assert "verdict.pooled" not in tags["baseline[dataset=easy]"]
    assert [line for line in verdict_lines(report) if line.startswith("decided: arm[dataset=hard]")]


def test_the_best_is_that_of_one_context():
    made = plan("arm")
    known = records(made, {"arm[dataset=hard]": 0.1})
    report = summarise(made, known)
    with pytest.raises(InputError, match="give --context with one of dataset=easy, dataset=hard"):
        find_winner(made, known, report)
    with pytest.raises(InputError, match="no context named 'hard'"):
        find_winner(made, known, report, context="hard")
    with pytest.raises(InputError, match="not in the context dataset=hard"):
        find_winner(made, known, report, arm="arm[dataset=easy]", context="dataset=hard")
    best = find_winner(made, known, report, context="dataset=hard")
    assert (best.arm, best.rivals) == ("arm[dataset=hard]", 2)
    assert find_winner(made, known, report, arm="baseline[dataset=hard]").arm == "baseline[dataset=hard]"


def test_main_effects_are_those_of_one_context():
    made = plan("minus-gate", "minus-halt", "minus-all")
    without = {"minus-gate": ("gate",), "minus-halt": ("halt",), "minus-all": ("gate", "halt")}
    arms = tuple(replace(arm, without=without.get(arm.name_in_context, ())) for arm in made.arms)
    made = replace(made, arms=arms, factors=("gate", "halt"))
    lost = {f"{label}[dataset=hard]": -0.1 for label in ("minus-gate", "minus-all")}
    report = summarise(made, records(made, lost, {"easy": 0.01, "hard": 0.01}))
    found = {(effect.cell, effect.components): effect for effect in report.factorial}
    assert len(found) == 2 * 3
    assert {effect.family for effect in found.values()} == {6}
    assert found["baseline[dataset=hard]", ("gate",)].estimate.mean == pytest.approx(0.1, abs=0.01)
    significant = [key for key, each in found.items() if each.p is not None and each.p <= 0.05]
    assert significant == [("baseline[dataset=hard]", ("gate",))]
    wild = summarise(made, records(made, lost, {"easy": 0.01, "hard": 5.0}))
    for each in report.factorial:
        if each.cell == "baseline[dataset=easy]":
            assert each in wild.factorial, "what scatters elsewhere widens no interval here"
