"""All faults of a spec file are reported at once; without such faults, all faults of its plan."""

import pytest

from orchestrator.errors import PlanError, SpecError
from orchestrator.plan.planner import plan_file

HEAD = "name: both\nquestion: Are all reported?\n"
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
ARM = "  minus-gate: {why: plain block, set: {model.gat: false}}\n"
SEARCH = """search:
  also: {model.halt.threshold: {float: [0.9, 0.999]}}
  trials_per_arm: TRIALS
  objectives: [{metric: valid/accuracy, goal: max}]
"""
CONFIRM = "confirm: {seeds: SEEDS}\n"


def fault_places(tmp_path, text, error=SpecError):
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    with pytest.raises(error) as caught:
        plan_file(file)
    return [(fault.line, fault.path) for fault in caught.value.faults]


def make_spec_text(baseline=BASELINE, arms=ARMS, trials="2", seeds="[1, 2]"):
    return HEAD + baseline + arms + SEARCH.replace("TRIALS", trials) + CONFIRM.replace("SEEDS", seeds)


def test_faulty_baseline_does_not_hide_faults_of_arms(tmp_path):
    assert fault_places(tmp_path, make_spec_text(WRONG_MODEL, arms=f"arms:\n{ARM}"), PlanError) == [
        (5, "baseline.model.widht"),
        (8, "arms.minus-gate.set.model.gat"),
    ]


def test_wrong_values_of_all_sections_are_reported(tmp_path):
    faults = fault_places(tmp_path, make_spec_text(trials="2.5", seeds="[1, -1]"))
    assert faults == [(12, "search.trials_per_arm"), (14, "confirm.seeds[1]")]


def test_dropped_range_that_is_wrong_is_reported_once(tmp_path):
    arms = "arms:\n  no-halt: {why: all layers, set: {model.halt: null}, drop: [model.halt.threshold]}\n"
    text = HEAD + BASELINE + "  #\n" + arms + SEARCH.replace("TRIALS", "2").replace("[0.9, 0.999]", "[1, 0]")
    assert [path for _, path in fault_places(tmp_path, text)] == ["search.also.model.halt.threshold.float"]


def test_unreadable_baseline_is_reported_alone(tmp_path):
    assert fault_places(tmp_path, make_spec_text("baseline: 3\n")) == [(3, "baseline")]


def test_file_without_faults_is_planned(tmp_path):
    assert fault_places(tmp_path, make_spec_text(arms=f"arms:\n{ARM}"), PlanError) == [
        (8, "arms.minus-gate.set.model.gat")
    ]
