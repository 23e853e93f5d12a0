"""The rehearsal takes one step of every arm, leaves no files, and explains failures."""

from dataclasses import replace

import pytest
import torch

from orchestrator.errors import PlanError
from orchestrator.execution.trial import rehearsal
from orchestrator.plan.planner import plan
from orchestrator.spec.load import read_spec
from search_spaces.paths import with_value
from tests.support.training_code.own_code import forgotten

SPEC = """\
name: gates
question: Does the gate help?
baseline:
  task: {name: listops, train_length_max: 50}
  model: {name: universal, width: 16, heads: 2, feedforward_width: 16, max_layers: 3}
  train: {steps: 20, report_every: 10}
arms:
  minus-gate: {why: plain feed-forward block, set: {model.gate: false}}
  token-halt: {why: each token for itself, set: {model.halt.unit: token}}
grid: {model.max_layers: [2, 3]}
confirm: {seeds: [1, 2], splits: [near-iid]}
posthoc: {model.halt.threshold: [0.5]}
"""
CELL = "[model.max_layers=3]"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    file = tmp_path_factory.mktemp("spec") / "gates.yaml"
    file.write_text(SPEC)
    source = read_spec(file)
    return source, plan(source)


def change_arm(plan_, arm, path, value):
    """Change a setting of an arm to a value that the planner would refuse."""
    arms = [
        replace(each_arm, settings=with_value(each_arm.settings, path, value))
        if each_arm.name == arm
        else each_arm
        for each_arm in plan_.arms
    ]
    return replace(plan_, arms=tuple(arms))


@pytest.fixture
def steps(monkeypatch):
    """Record the trained settings and their measurements."""
    recorded = []
    take_step = rehearsal.take_step

    def record_step(settings, **options):
        recorded.append((settings, take_step(settings, **options)))
        return recorded[-1][1]

    monkeypatch.setattr(rehearsal, "take_step", record_step)
    return recorded


def test_every_arm_takes_one_step_with_its_settings_and_leaves_no_files(
    planned, steps, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rehearsal.rehearse(*planned)
    assert list(tmp_path.iterdir()) == []
    arms = planned[1].arms
    assert [settings for settings, _ in steps] == [arm.settings for arm in arms]
    assert len(arms) == 6
    assert {measurement.step for _, measurement in steps} == {1}
    losses = [measurement.metrics["train/loss"] for _, measurement in steps]
    # With ten classes and initial weights, a loss near log 10 shows that the head and labels of the task were
    # used.
    assert all(1.0 < loss < 5.0 for loss in losses)


def test_every_failing_arm_is_reported_with_its_location(planned):
    source, plan_ = planned
    plan_ = change_arm(plan_, f"baseline{CELL}", "train.ponder_weight", 1e39)  # beyond float32
    plan_ = change_arm(plan_, f"token-halt{CELL}", "train.ponder_weight", 1e39)
    with pytest.raises(PlanError) as caught:
        rehearsal.rehearse(source, plan_)
    first_fault, second_fault = map(str, caught.value.faults)
    file = source.document.origin.file
    assert first_fault.startswith(f"{file}:3: baseline: baseline{CELL}: ")
    assert second_fault.startswith(f"{file}:9: arms.token-halt: token-halt{CELL}: ")


def test_arms_on_data_of_one_shape_share_one_step(tmp_path, steps):
    """The number of examples changes no step; the length of the longest example changes the shape and may."""
    file = tmp_path / "gates.yaml"
    sizes = SPEC.replace("grid:", "contexts:").replace(
        "model.max_layers: [2, 3]", "task.valid_examples: [10, 20]"
    )
    file.write_text(sizes)
    source = read_spec(file)
    plan_ = plan(source)
    assert len(plan_.arms) == 6
    rehearsal.rehearse(source, plan_)
    assert [settings for settings, _ in steps] == [arm.settings for arm in plan_.arms[::2]]


@pytest.mark.parametrize(("gpus", "precision", "expected"), [(0.5, "fp16", "fp32"), (0, "bf16", "bf16")])
def test_half_precision_of_a_gpu_is_not_rehearsed_without_a_gpu(
    planned, steps, monkeypatch, gpus, precision, expected
):
    """A spec for GPUs can be rehearsed without one; a sweep for CPUs is rehearsed unchanged."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    source, plan_ = planned
    arm = plan_.arms[0]
    plan_ = replace(
        change_arm(plan_, arm.name, "train.precision", precision),
        resources=plan_.resources.model_copy(update={"gpus": gpus}),
    )
    rehearsal.rehearse(source, replace(plan_, arms=plan_.arms[:1]))
    assert [settings["train"] for settings, _ in steps] == [{**arm.settings["train"], "precision": expected}]


def test_step_that_raises_is_reported(planned, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan_ = change_arm(planned[1], f"minus-gate{CELL}", "train.precision", "fp16")
    with pytest.raises(PlanError, match=r"'fp16'.*trainables/training/step\.py:\d+\)$"):
        rehearsal.rehearse(planned[0], plan_)


CUSTOM = """\
name: custom
question: Does it act?
trainable: rehearsed:train
baseline: {momentum: 0.0, width: 8}
arms:
  momentum: {why: acts late, set: {momentum: 0.5}}
  wide: {why: nothing reads it, set: {width: 16}}
confirm: {seeds: 2, splits: [test]}
"""
SEARCH = """\
search:
  also: {momentum: {float: [0, 1]}}
  trials_per_arm: 2
  objectives: [{metric: valid/loss, goal: min}]
"""


@pytest.fixture
def first_reports_of(tmp_path, monkeypatch):
    """Return the first reports of all arms, whose training function has the given lines."""
    monkeypatch.chdir(tmp_path)

    def rehearse_lines(*lines, spec=CUSTOM):
        body = "".join(f"    {line}\n" for line in lines)
        (tmp_path / "rehearsed.py").write_text(f"import time\n\n\ndef train(settings, trial):\n{body}")
        (tmp_path / "custom.yaml").write_text(spec)
        return list(rehearsal.first_reports(plan(read_spec(tmp_path / "custom.yaml"))))

    with forgotten(tmp_path):
        yield rehearse_lines


def test_arms_with_an_equal_first_report_are_compared_in_the_second(first_reports_of):
    baseline, momentum, wide_report = first_reports_of(
        'trial.report(1, {"valid/loss": 1.0, "seconds": time.perf_counter()})',
        'trial.report(2, {"valid/loss": 1.0 - settings["momentum"], "seconds": time.perf_counter()})',
    )
    assert not any(report.error for report in (baseline, momentum, wide_report))
    assert baseline.unsteady_metrics == ("seconds",)
    assert (momentum.equal_metrics, momentum.num_equal_reports) == ((), 0)
    assert (wide_report.equal_metrics, wide_report.num_equal_reports) == (("valid/loss",), 2)


@pytest.mark.parametrize(("spec", "splits"), [(CUSTOM, ("test",)), (CUSTOM + SEARCH, ())])
def test_custom_code_is_rehearsed_like_the_first_trials_of_the_sweep(first_reports_of, spec, splits):
    (report, *_) = first_reports_of(
        'trial.report(1, {"valid/loss": 1.0} | {f"{split}/loss": 1.0 for split in trial.splits})',
        spec=spec.replace("  momentum: {why: acts late, set: {momentum: 0.5}}\n", ""),
    )
    assert report.metrics.keys() == {"valid/loss", *(f"{split}/loss" for split in splits)}


def test_changed_and_searched_fields_that_are_not_read_are_listed(first_reports_of):
    spec = CUSTOM + SEARCH.replace("momentum: {float: [0, 1]}", "width: {int: [8, 16]}")
    reports = first_reports_of(
        'trial.report(1, {"valid/loss": 1.0 - settings["momentum"]})',
        spec=spec.replace("set: {width: 16}", "set: {width: 16}, drop: [width]"),
    )
    assert [report.unread_fields for report in reports] == [("width",), (), ("width",)]


@pytest.mark.parametrize(
    "line",
    ["loss = 1.0 if type(settings) is dict else 2.0", "import yaml; yaml.safe_dump(settings); loss = 1.0"],
)
def test_reads_are_unknown_if_instrumented_settings_change_the_report(first_reports_of, line):
    reports = first_reports_of("settings['momentum']", line, 'trial.report(1, {"valid/loss": loss})')
    assert [(report.error, report.num_equal_reports) for report in reports] == [("", 0), ("", 1), ("", 1)]
    assert [report.unread_fields for report in reports] == [()] * 3
