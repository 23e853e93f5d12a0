"""An arm that wins only by thinking longer is exposed; nothing is extrapolated."""

import json
from dataclasses import replace

import pytest

from orchestrator.plan.planner import plan_file
from orchestrator.plan.types import AnswerPlan, ConfirmPlan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.equal_cost import interpolate
from orchestrator.report.results.details import details
from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.write import as_markdown_report
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.comparisons.test_answers import METRICS, NOISE, SEEDS, plan, record
from tests.support.training_code.own_code import forgotten
from trainables.custom.extensions import add_to_path
from trainables.protocol import Measurement

THRESHOLD, LAYERS = "model.halt.threshold", "model.max_layers"
DEPTHS = {"baseline": 5.0, "thinker": 8.0, "better": 8.0, "deep": 8.0}
READ_AT = {0.3: -4.0, 0.5: -2.0, 0.7: -1.0}
"""By threshold, layers less than as trained."""
STUDY = plan(
    tuple(DEPTHS),
    confirm=ConfirmPlan(1, SEEDS, ("iid",)),
    posthoc=tuple({THRESHOLD: each} for each in READ_AT),
    metrics=tuple(replace(metric, is_cost=metric.name == "depth") for metric in METRICS),
    answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3),
)


def outcome(name, depth, seed):
    """More layers are worth the same to all; one arm is better at any number of them."""
    place = SEEDS.index(seed)
    return 0.5 + 0.03 * depth + 0.1 * (name == "better") + NOISE[(place * 3 + len(name)) % 8]


def reading(name, seed, threshold=None):
    depth = DEPTHS[name] + 0.1 * NOISE[SEEDS.index(seed)] + (READ_AT[threshold] if threshold else 0.0)
    if name == "deep" and threshold:
        depth = max(depth, 6.0)
    metrics = {"iid/accuracy": outcome(name, depth, seed), "iid/depth": depth}
    changes = {} if threshold is None else {"phase": "posthoc", "overrides": {THRESHOLD: threshold}}
    made = record(name, seed, last=Measurement(1, 1.0, metrics), **changes)
    return replace(made, trial_id=f"{made.trial_id}-{threshold}")


def study():
    settings = (None, *READ_AT)
    return [reading(name, seed, setting) for name in DEPTHS for seed in SEEDS for setting in settings]


def equal(report):
    return {equal_cost.arm: equal_cost for equal_cost in report.equal_costs}


def test_gain_from_depth_disappears_at_equal_depth():
    found = equal(summarise(STUDY, study()))
    thinker, better = found["thinker"], found["better"]
    assert thinker.as_trained.low > 0.05
    assert thinker.equal.low < 0 < thinker.equal.high
    assert abs(thinker.equal.mean) < 0.01
    assert better.equal.low > 0.08
    assert (thinker.cost, thinker.path, thinker.reached) == ("iid/depth", THRESHOLD, 8)
    assert (thinker.own_cost, thinker.cost_of_reference) == pytest.approx((8.0, 5.0), abs=0.01)


def test_gain_from_cost_is_a_warning():
    report = summarise(STUDY, study())
    assert [verdict.kind for verdict in report.verdicts] == ["better"] * 3
    [shown] = [warning_text for warning_text in warning_texts(report) if "spends" in warning_text]
    assert shown.startswith(
        "thinker is better than baseline in iid/accuracy as trained, where it spends 8 of"
    )
    undecided = tuple(replace(verdict, kind="undecided") for verdict in report.verdicts)
    assert not [
        warning_text
        for warning_text in warning_texts(replace(report, verdicts=undecided))
        if "spends" in warning_text
    ]


def test_a_cost_that_is_an_outcome_is_not_compared_at_itself():
    answered = replace(STUDY, answer=AnswerPlan(("iid/accuracy", "iid/depth"), 0.02, 0.05, 6))
    report = summarise(answered, study())
    assert {(equal_cost.outcome, equal_cost.cost) for equal_cost in report.equal_costs} == {
        ("iid/accuracy", "iid/depth")
    }
    drawn = details(answered, report, study(), {}).costs
    assert {(record.outcome, record.cost) for record in drawn} == {("iid/accuracy", "iid/depth")}


def test_no_estimate_if_no_seed_reaches_the_cost():
    report = summarise(STUDY, study())
    deep = equal(report)["deep"]
    assert deep.equal is None
    assert deep.reached == 0
    text = as_markdown_report(report, [])
    assert "unknown: 0 of 8 seeds reach this cost" in text
    assert "exploratory: arms at the cost of their references" in text


OWN = """
metrics = {"accuracy": {"better": "max", "range": [0, 1]}, "depth": {"unit": "calls", "cost": True}}

def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})

def evaluate(settings, folder):
    return {"iid/accuracy": 0.5, "iid/depth": 1.0}

haltsweep = {"metrics": metrics, "evaluate": evaluate}
"""


def test_own_metrics_that_are_declared_as_costs_are_compared_alike(tmp_path):
    spec = {
        "name": "own",
        "question": "Who wins by more calls?",
        "trainable": "calling:train",
        "baseline": {"threshold": 0.9, "kind": "baseline"},
        "arms": {name: {"why": "its own", "set": {"kind": name}} for name in DEPTHS if name != "baseline"},
        "confirm": {"seeds": list(SEEDS), "splits": ["iid"]},
        "posthoc": {"threshold": [*READ_AT]},
        "answer": {"metric": "iid/accuracy", "margin": 0.02},
    }
    (tmp_path / "calling.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(json.dumps(spec))
    with forgotten(tmp_path):
        add_to_path(tmp_path)
        _, planned = plan_file(tmp_path / "own.yaml")
    readings = [
        replace(record, overrides={"threshold": record.overrides[THRESHOLD]} if record.overrides else {})
        for record in study()
    ]
    report = summarise(planned, readings)
    found = equal(report)
    assert {equal_cost.cost for equal_cost in report.equal_costs} == {"iid/depth"}
    assert found["thinker"].equal.low < 0 < found["thinker"].equal.high
    assert found["better"].equal.low > 0.08


def test_no_estimate_if_one_seed_misses_the_cost():
    changed = [
        replace(record, outcome=OutcomeKind.CRASHED, last=None)
        if record.arm == "thinker"
        and record.seed == 103
        and record.overrides in ({THRESHOLD: 0.3}, {THRESHOLD: 0.5})
        else record
        for record in study()
    ]
    thinker = equal(summarise(STUDY, changed))["thinker"]
    assert (thinker.reached, thinker.seeds, thinker.equal) == (7, 8, None)


def test_fields_are_interpolated_each_for_itself():
    both = replace(STUDY, posthoc=(*STUDY.posthoc, {LAYERS: 3}))
    more = [
        replace(reading("thinker", seed, 0.3), overrides={LAYERS: 3}, trial_id=f"layers-{seed}")
        for seed in SEEDS
    ]
    found = [
        equal_cost
        for equal_cost in summarise(both, [*study(), *more]).equal_costs
        if equal_cost.arm == "thinker"
    ]
    assert [each.path for each in found] == [THRESHOLD, LAYERS]
    assert all(each.reached == 8 for each in found)


def test_settings_are_compared_with_as_trained_seed_by_seed():
    report = summarise(STUDY, study())
    (found,) = (
        setting_effect.estimate
        for setting_effect in report.setting_effects
        if setting_effect.arm == "baseline" and setting_effect.setting == f"{THRESHOLD}=0.5"
    )
    assert found.n == 8
    assert found.mean == pytest.approx(-0.06)
    assert found.high is None or found.high - found.low < 1e-6, "what seeds have in common is gone"
    assert "other settings minus as trained, paired by seed" in as_markdown_report(report, [])


def test_differences_end_where_quantities_do():
    """Two seeds that differ a lot: Student's t alone would reach beyond accuracies of 0 and 1."""
    accuracies = {None: (0.9, 0.1), 0.5: (0.2, 0.8)}
    records = [
        replace(
            made := reading(name, seed, threshold),
            last=replace(
                made.last,
                metrics={
                    "iid/accuracy": abs((name == "thinker") - accuracies[threshold][SEEDS.index(seed)]),
                    "iid/depth": 5.0 if name == "baseline" or threshold else 8.0,
                },
            ),
        )
        for name in ("baseline", "thinker")
        for seed in SEEDS[:2]
        for threshold in accuracies
    ]
    found = summarise(STUDY, records)
    for interval in (equal(found)["thinker"].as_trained, equal(found)["thinker"].equal):
        assert (interval.low, interval.high) == (-1.0, 1.0)
    for setting_effect in found.setting_effects:
        if setting_effect.metric == "iid/accuracy":
            assert (setting_effect.estimate.low, setting_effect.estimate.high) == (-1.0, 1.0)


def test_interpolation():
    points = [(3.0, 0.3), (1.0, 0.1), (5.0, 0.9), (3.0, 0.5)]
    assert interpolate(points, 2.0) == pytest.approx(0.25)
    assert interpolate(points, 3.0) == pytest.approx(0.4)
    assert interpolate(points, 5.0) == 0.9
    assert interpolate(points, 5.01) is None
    assert interpolate(points, 0.99) is None
    assert interpolate([(2.0, 0.7)], 2.0) == 0.7
    assert interpolate([(2.0, 0.7)], 2.1) is None
    assert interpolate([], 1.0) is None


def test_seed_without_a_cost_counts_as_missing():
    def silent(each):
        if (each.arm, each.seed, each.phase) != ("thinker", SEEDS[0], "confirm"):
            return each
        accuracy = {"iid/accuracy": each.last.metrics["iid/accuracy"]}
        return replace(each, last=replace(each.last, metrics=accuracy))

    found = equal(summarise(STUDY, [silent(each) for each in study()]))["thinker"]
    assert (found.reached, found.seeds, found.equal) == (7, 8, None)
    assert found.as_trained.n == 8
