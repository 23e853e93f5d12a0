"""Plans are complete, pure and equal on every machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan import estimate, planner
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.serialise import to_json
from orchestrator.spec.load import read_spec
from tests.orchestrator.plan.small_specs import (
    ARMS,
    make_baseline,
    make_full_spec,
    make_one_arm_spec,
    make_spec,
)
from tests.support.specs.planned import plan

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
YAML = """
name: tiny
question: Does it plan?
baseline:
  task: {name: listops}
  model: {name: universal, width: 16, heads: 2, max_layers: 4}
  train: {steps: 100}
arms:
  minus-gate: {why: plain block, set: {model.gate: false}}
search:
  spaces: [halting]
  trials_per_arm: 3
  objectives: [{metric: valid/accuracy, goal: max}]
confirm: {seeds: [1, 2], splits: [near-iid]}
posthoc: {model.halt.threshold: [0.5]}
"""
PLAN_AND_PRINT = """
import sys
from pathlib import Path
from orchestrator.plan.planner import plan
from orchestrator.plan.serialise import to_json
from orchestrator.spec.load import profile_names, read_spec
sys.stdout.write(to_json(plan(read_spec(Path('spec.yaml')))))
loaded = {'ray', 'mlflow', 'sqlalchemy'} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.fixture(scope="module")
def full_plan() -> Any:
    return planner.plan(make_full_spec())


def test_baseline_is_first_and_arms_are_in_the_order_of_the_spec(full_plan: Any) -> None:
    assert [arm.name for arm in full_plan.arms] == ["baseline", *ARMS]
    assert full_plan.baseline.changes == ()
    assert {arm.reference for arm in full_plan.arms[1:]} == {"baseline"}


def test_settings_are_complete_and_differ_only_as_declared(full_plan: Any) -> None:
    base = full_plan.baseline.settings
    assert base["model"]["halt"]["threshold"] == 0.999
    assert base["train"]["lr"] == 5e-4
    gate = full_plan.arm("minus-gate")
    assert gate.settings == {**base, "model": {**base["model"], "gate": False}}
    assert [(change.path, change.before, change.after) for change in gate.changes] == [
        ("model.gate", True, False)
    ]


def test_every_arm_has_its_trials(full_plan: Any) -> None:
    counts = {price.arm: price.trials for price in full_plan.prices}
    assert counts["baseline"] == {"search": 3, "confirm": 3, "posthoc": 6}
    assert counts["no-halt"] == {"search": 3, "confirm": 3}
    assert len(full_plan.trials) == sum(sum(count.values()) for count in counts.values())
    assert len({trial.trial_id for trial in full_plan.trials}) == len(full_plan.trials)


def test_dimensions_of_a_removed_component_are_dropped(full_plan: Any) -> None:
    arm = full_plan.arm("no-halt")
    assert arm.space.paths == ("model.max_layers", "train.lr")
    assert arm.dropped == ("train.ponder_weight", "model.halt.threshold")


def test_posthoc_settings_are_tried_one_at_a_time() -> None:
    sweep_plan = plan(make_spec(posthoc={"model.halt.threshold": [0.3, 0.7], "model.max_layers": [12]}))
    assert sweep_plan.posthoc == (
        {"model.halt.threshold": 0.3},
        {"model.halt.threshold": 0.7},
        {"model.max_layers": 12},
    )


def test_grid_crosses_every_arm_with_every_cell() -> None:
    sweep_plan = plan(
        make_one_arm_spec({"model.gate": False}, name="minus-gate", grid={"model.max_layers": [4, 8]})
    )
    assert [arm.name for arm in sweep_plan.arms] == [
        "baseline[model.max_layers=4]",
        "baseline[model.max_layers=8]",
        "minus-gate[model.max_layers=4]",
        "minus-gate[model.max_layers=8]",
    ]
    assert [arm.reference for arm in sweep_plan.arms] == [
        "",
        sweep_plan.arms[0].name,
        *(a.name for a in sweep_plan.arms[:2]),
    ]
    assert sweep_plan.arms[3].settings["model"]["max_layers"] == 8
    assert [change.path for change in sweep_plan.arms[3].changes] == ["model.gate"]
    assert [change.path for change in sweep_plan.arms[1].changes] == ["model.max_layers"]
    assert sweep_plan.power.comparisons == 3


@pytest.mark.slow
def test_equal_specs_give_equal_plans_in_a_read_only_folder_under_any_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(YAML)
    tmp_path.chmod(0o555)
    texts = [
        subprocess.run(
            [sys.executable, "-B", "-c", PLAN_AND_PRINT],
            env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    tmp_path.chmod(0o755)
    assert texts[0] == texts[1]
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]
    assert texts[0] == to_json(plan(read_spec(tmp_path / "spec.yaml")))


@pytest.mark.slow
def test_probe_of_earlier_plans_does_not_change_a_plan(full_plan: Any) -> None:
    """Systems that differ in task, loss or weights must not be confused."""
    probe = Probe()
    for changes in (
        {"train": {**make_baseline()["train"], "ponder_weight": 0.5}},
        {"task": {"name": "listops", "train_length_max": 50}},
        make_baseline(width=32),
    ):
        planner.plan(make_full_spec(baseline={**make_baseline(), **changes}), probe=probe)
    assert planner.plan(make_full_spec(), probe=probe) == full_plan


def test_slow_batch_is_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        estimate, "_measure_step_seconds", lambda learner, system, examples: 2.0 + 0.5 * examples
    )
    small_spec = make_spec(baseline={**make_baseline(), "train": {"steps": 5, "batch_size": 100}})
    assert planner.plan(small_spec, calibrate=True).prices[0].seconds_per_step == pytest.approx(52.0)


def test_batches_of_tokens_are_estimated_as_long_samples() -> None:
    """Strings have at most 12 symbols, and answers have an additional end token."""
    task = {"name": "transduction", "length_max": 12}
    prices = []
    for train in ({"batch_size": 4}, {"batch_tokens": 4 * 13 + 12, "order": "bucketed"}):
        small_spec = make_spec(baseline={**make_baseline(), "task": task, "train": {"steps": 5, **train}})
        prices.append(plan(small_spec).prices[0])
    assert prices[0] == prices[1]


def test_calibration_adds_only_seconds() -> None:
    small_spec = make_one_arm_spec(
        {"model.gate": False}, baseline={**make_baseline(), "train": {"steps": 5, "batch_size": 20}}
    )
    timed_plan, plain_plan = planner.plan(small_spec, calibrate=True), plan(small_spec)
    assert all(price.seconds_per_step and price.seconds_per_step > 0 for price in timed_plan.prices)
    assert timed_plan.trials == plain_plan.trials
    assert timed_plan.arms == plain_plan.arms
