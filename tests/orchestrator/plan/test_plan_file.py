"""Faults of the file and faults of the plan are told together."""

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.planner import plan_file

HEAD = "name: both\nquestion: Are all told?\n"
BASELINE = """baseline:
  task: {name: listops}
  model: {name: universal, width: 16, heads: 2}
  train: {steps: 4}
"""
WRONG_MODEL = BASELINE.replace("width: 16", "widht: 16")
ARMS = """arms:
  minus-gate: {why: plain block, set: {model.gat: false}}
  no-halt: {why: always all layers, set: {model.halt: null}}
"""
SEARCH = """search:
  also: {model.halt.threshold: {float: [0.9, 0.999]}}
  trials_per_arm: TRIALS
  objectives: [{metric: valid/accuracy, goal: max}]
"""
CONFIRM = "confirm: {seeds: SEEDS}\n"


def reported(tmp_path, text, error=SpecError):
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    with pytest.raises(error) as caught:
        plan_file(file)
    return [(fault.line, fault.path) for fault in caught.value.faults]


def spec(baseline=BASELINE, arms=ARMS, trials="2", seeds="[1, 2]"):
    return HEAD + baseline + arms + SEARCH.replace("TRIALS", trials) + CONFIRM.replace("SEEDS", seeds)


def test_a_faulty_arm_does_not_hide_the_others(tmp_path):
    assert reported(tmp_path, spec(WRONG_MODEL)) == [
        (5, "baseline.model.widht"),
        (8, "arms.minus-gate.set.model.gat"),
        (9, "arms.no-halt.set.model.halt"),
    ]


def test_faulty_sections_do_not_hide_the_arms(tmp_path):
    found = reported(tmp_path, spec(WRONG_MODEL, trials="2.5", seeds="[1, 1]"))
    assert found == [
        (5, "baseline.model.widht"),
        (8, "arms.minus-gate.set.model.gat"),
        (9, "arms.no-halt.set.model.halt"),
        (12, "search.trials_per_arm"),
        (14, "confirm.seeds"),
    ]


def test_a_wrong_range_does_not_hide_a_wrong_sampler(tmp_path):
    """Nor a wrong stopper, nor other ranges."""
    text = (
        HEAD
        + BASELINE
        + SEARCH.replace("TRIALS", "2")
        .replace(
            "also: {",
            "sampler: tpee\n  stopper: {name: asha, graze: 3}\n  "
            "also: {train.lr: {float: [2, 1]}, train.nope: {float: [0, 1]}, ",
        )
        .replace("objectives", "seed: -1\n  objectives")
    )
    found = reported(tmp_path, text)
    paths = {path for _, path in found}
    assert {"search.also.train.lr.float", "search.seed", "search.sampler", "search.stopper.graze"} <= paths
    assert any(path.startswith("search.also.train.nope") for path in paths)


@pytest.mark.parametrize(
    "search",
    [
        pytest.param("trials_per_arm: zero", id="trials"),
        pytest.param("trials_per_arm: 2", id="baseline"),
    ],
)
def test_neither_does_a_search_that_cannot_be_planned(tmp_path, search):
    """What it needs is wrong, or the baseline is, without which nothing can be planned."""
    baseline = BASELINE if "zero" in search else "baseline: []\n"
    wrong = f"sampler: {{name: tpe, n_trials: 3}}\n  stopper: medain\n  {search}\n"
    text = HEAD + baseline + SEARCH.replace("trials_per_arm: TRIALS\n", wrong)
    paths = {path for _, path in reported(tmp_path, text)}
    expected = {"search.trials_per_arm"} if "zero" in search else {"baseline"}
    assert {"search.sampler.n_trials", "search.stopper"} | expected <= paths


def test_a_wrong_seed_does_not_hide_that_another_is_there_twice(tmp_path):
    found = reported(tmp_path, spec(arms="", seeds="[1, 1, -3]"))
    assert found == [(11, "confirm.seeds[2]"), (11, "confirm.seeds")]


def test_a_dropped_range_that_is_wrong_is_told_once(tmp_path):
    arms = "arms:\n  no-halt: {why: all layers, set: {model.halt: null}, drop: [model.halt.threshold]}\n"
    text = HEAD + BASELINE + "  #\n" + arms + SEARCH.replace("TRIALS", "2").replace("[0.9, 0.999]", "[1, 0]")
    assert [path for _, path in reported(tmp_path, text)] == ["search.also.model.halt.threshold.float"]


def test_a_missing_name_does_not_hide_the_arms(tmp_path):
    found = reported(tmp_path, spec().replace("name: both\n", ""))
    assert {"name", "arms.minus-gate.set.model.gat"} <= {path for _, path in found}


def test_a_baseline_that_cannot_be_read_is_told_alone(tmp_path):
    assert reported(tmp_path, spec("baseline: 3\n")) == [(3, "baseline"), (6, "arms.no-halt.set.model.halt")]


def test_a_file_without_faults_of_its_own_is_planned(tmp_path):
    arms = "arms:\n  minus-gate: {why: plain block, set: {model.gat: false}}\n"
    assert reported(tmp_path, spec(arms=arms), PlanError) == [(8, "arms.minus-gate.set.model.gat")]


def test_an_override_that_leads_nowhere_does_not_hide_the_plan(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(spec(WRONG_MODEL, arms=""))
    with pytest.raises(SpecError) as caught:
        plan_file(file, ["confirm.sedes=[1]"])
    assert "confirm.sedes" in str(caught.value)
    assert "baseline.model.widht" in str(caught.value)
