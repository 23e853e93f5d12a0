"""The plan as a whole: what it holds, that it is pure and the same everywhere."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan import estimate, planner
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.serialise import from_json, to_json
from orchestrator.spec.load import profile_names, read_spec
from tests.orchestrator.plan.small import ARMS, CONFIRM, SEARCH, baseline, full, one_arm, spec
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
def everything() -> Any:
    return planner.plan(full())


def test_arms_stand_baseline_first_in_the_order_of_the_spec(everything: Any) -> None:
    assert [arm.name for arm in everything.arms] == ["baseline", *ARMS]
    assert everything.baseline.changes == ()
    assert {arm.reference for arm in everything.arms[1:]} == {"baseline"}


def test_settings_are_full_and_differ_only_where_declared(everything: Any) -> None:
    base = everything.baseline.settings
    assert base["model"]["halt"]["threshold"] == 0.999
    assert base["train"]["lr"] == 5e-4
    gate = everything.arm("minus-gate")
    assert gate.settings == {**base, "model": {**base["model"], "gate": False}}
    assert [(change.path, change.before, change.after) for change in gate.changes] == [
        ("model.gate", True, False)
    ]


def test_every_arm_has_its_trials(everything: Any) -> None:
    counts = {price.arm: price.trials for price in everything.prices}
    assert counts["baseline"] == {"search": 3, "confirm": 3, "posthoc": 6}
    assert counts["no-halt"] == {"search": 3, "confirm": 3}
    assert len(everything.trials) == sum(sum(each.values()) for each in counts.values())
    assert len({trial.trial_id for trial in everything.trials}) == len(everything.trials)


def test_dimensions_of_a_removed_component_are_gone(everything: Any) -> None:
    arm = everything.arm("no-halt")
    assert arm.space.paths == ("model.max_layers", "train.lr")
    assert arm.dropped == ("train.ponder_weight", "model.halt.threshold")


def test_posthoc_settings_are_tried_one_at_a_time() -> None:
    found = plan(spec(posthoc={"model.halt.threshold": [0.3, 0.7], "model.max_layers": [12]}))
    assert found.posthoc == (
        {"model.halt.threshold": 0.3},
        {"model.halt.threshold": 0.7},
        {"model.max_layers": 12},
    )


def test_grid_crosses_every_arm_with_every_cell() -> None:
    found = plan(one_arm({"model.gate": False}, name="minus-gate", grid={"model.max_layers": [4, 8]}))
    assert [arm.name for arm in found.arms] == [
        "baseline[model.max_layers=4]",
        "baseline[model.max_layers=8]",
        "minus-gate[model.max_layers=4]",
        "minus-gate[model.max_layers=8]",
    ]
    assert [arm.reference for arm in found.arms] == [
        "",
        found.arms[0].name,
        *(a.name for a in found.arms[:2]),
    ]
    assert found.arms[3].settings["model"]["max_layers"] == 8
    assert [change.path for change in found.arms[3].changes] == ["model.gate"]
    assert [change.path for change in found.arms[1].changes] == ["model.max_layers"]
    assert found.power is not None
    assert found.power.comparisons == 3


def test_published_values_become_rows() -> None:
    rows = [{"arm": "baseline", "metric": "accuracy", "values": {"near-iid": 0.9, "lra": 0.5}, "source": "a"}]
    found = plan(spec(published=rows)).published
    assert [(row["split"], row["value"]) for row in found] == [("near-iid", 0.9), ("lra", 0.5)]


def test_a_spec_without_a_file_names_the_path_alone() -> None:
    with pytest.raises(PlanError) as caught:
        plan(spec(baseline=baseline(max_dpeth=3)))
    assert str(caught.value).startswith("baseline.model.max_dpeth: no field model.max_dpeth. ")


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        plan(
            spec(
                arms={"a": {"why": "x", "set": {"model.gatee": False}}, "b": ARMS["minus-gate"]},
                search={**SEARCH, "sampler": {"name": "nobody"}, "stopper": {"name": "nothing"}},
                confirm={**CONFIRM, "splits": ["nowhere"]},
            )
        )
    shown = [fault.path for fault in caught.value.faults]
    assert shown == ["search.sampler", "search.stopper", "arms.a.set.model.gatee", "confirm.splits[0]"]


@pytest.mark.slow
def test_the_same_spec_gives_the_same_plan_in_a_read_only_folder_under_any_hash_seed(tmp_path: Path) -> None:
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
def test_what_was_built_for_other_plans_changes_nothing(everything: Any) -> None:
    """Systems that differ in task, loss or weights must not be taken for each other."""
    probe = Probe()
    for changed in (
        {"train": {**baseline()["train"], "ponder_weight": 0.5}},
        {"task": {"name": "listops", "train_length_max": 50}},
        baseline(width=32),
    ):
        planner.plan(full(baseline={**baseline(), **changed}), probe=probe)
    assert planner.plan(full(), probe=probe) == everything


def test_json_round_trip(everything: Any) -> None:
    text = to_json(everything)
    assert from_json(text) == everything
    assert to_json(from_json(text)) == text


QUICK = ("digits", "gut-ablation-listops", "looped-parity", "lra-pathfinder")
"""Specs that between them use every section, of small models; `pytest --haltsweep` tries the others."""


@pytest.mark.parametrize("name", QUICK)
def test_experiments_round_trip(name: str) -> None:
    path = EXPERIMENTS / f"{name}.yaml"
    small = "small" if "small" in profile_names(path) else None
    found = plan(read_spec(path, profile=small))
    assert from_json(to_json(found)) == found


def test_a_batch_too_slow_to_time_is_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time_step", lambda learner, system, examples: 2.0 + 0.5 * examples)
    asked = spec(baseline={**baseline(), "train": {"steps": 5, "batch_size": 100}})
    assert planner.plan(asked, calibrate=True).prices[0].seconds_per_step == pytest.approx(52.0)


def test_batches_of_tokens_are_priced_as_so_many_long_samples() -> None:
    """Strings of at most 12 symbols, whose answers have an end besides."""
    task = {"name": "transduction", "length_max": 12}
    prices = []
    for train in ({"batch_size": 4}, {"batch_tokens": 4 * 13 + 12, "order": "bucketed"}):
        asked = spec(baseline={**baseline(), "task": task, "train": {"steps": 5, **train}})
        prices.append(plan(asked).prices[0])
    assert prices[0] == prices[1]


def test_calibration_adds_seconds_and_nothing_else() -> None:
    asked = one_arm({"model.gate": False}, baseline={**baseline(), "train": {"steps": 5, "batch_size": 20}})
    timed, plain = planner.plan(asked, calibrate=True), plan(asked)
    assert all(price.seconds_per_step and price.seconds_per_step > 0 for price in timed.prices)
    assert timed.trials == plain.trials
    assert timed.arms == plain.arms
