"""The ablation check refuses every mutant of a spec or adds a note, and accepts published arms."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from orchestrator.errors import PlanError
from orchestrator.plan import planner
from orchestrator.plan.ablation_check import passes, probe
from orchestrator.plan.ablation_check.differences import LEARNS, LEARNS_MOVED, READS
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.plan.types import ArmCheck
from tests.orchestrator.plan.small_specs import (
    ARMS,
    SEARCH,
    make_baseline,
    make_full_spec,
    make_one_arm_spec,
    make_spec,
)
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

GUT: Mapping[str, Mapping[str, Any]] = {
    "no-global-halt": {"model.halt.unit": "token"},
    "no-gate": {"model.gate": False},
    "no-transition": {"model.halt.transition": False},
    "upperbound": {"model.early_exit": "none"},
    "published-break": {"model.early_exit": "batch"},
    "no-halt-upperbound": {"model.halt": None},
    "no-act": {"train.ponder_weight": 0.0},
    "mean-pool": {"model.pooling": "mean"},
    "kv-from-s": {"model.kv": "mixture"},
    "halt-origin-1": {"model.halt.origin": 1},
    "prefix": {"model.halt.rule": "prefix"},
    "ut": {
        "model.gate": False,
        "model.pooling": "mean",
        "model.halt.unit": "token",
        "model.halt.transition": False,
    },
    "ut-no-halt": {"model.gate": False, "model.pooling": "mean", "model.halt": None},
    "transformer": {"model.name": "transformer", "model.pooling": "mean"},
    "deeper": {"model.max_layers": 9},
    "shallower": {"model.max_layers": 2},
    "eager": {"model.halt.threshold": 0.99},
    "wider": {"model.width": 32},
    "wide-gate": {"model.gate_width": 64},
    "no-dropout": {"model.dropout": 0.0, "model.attention_dropout": 0.0},
    "longer": {"train.steps": 200},
    "faster": {"train.lr": 1e-2},
    "scheduled": {"train.schedule": "cosine", "train.warmup_steps": 10},
    "unclipped": {"train.clip": None},
    "longer-inputs": {"task.train_length_max": 50},
}
UT: Mapping[str, Mapping[str, Any]] = {
    "end-pool": {"model.pooling": "end"},
    "no-halt": {"model.halt": None},
    "gated": {"model.gate": True},
    "keys-from-states": {"model.kv": "states"},
    "global-halt": {"model.halt.unit": "sequence"},
}
UT_BASELINE = make_baseline(gate=False, pooling="mean", halt={"unit": "token", "transition": False})


def arms_of(catalogue: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: {"why": "as published", "set": dict(sets)} for name, sets in catalogue.items()}


@pytest.fixture(scope="module")
def arm_checks() -> dict[str, ArmCheck]:
    return {check.arm: check for check in plan(make_spec(arms=arms_of(GUT))).proofs}


@pytest.mark.parametrize("name", sorted(GUT))
def test_arms_of_the_gated_universal_transformer_are_accepted(
    name: str, arm_checks: dict[str, ArmCheck]
) -> None:
    assert arm_checks[name].evidence


def test_arms_of_the_universal_transformer_are_accepted() -> None:
    checks = plan(make_spec(baseline=UT_BASELINE, arms=arms_of(UT))).proofs
    assert all(check.evidence for check in checks[1:])


def test_arm_without_training_of_its_halting_is_accepted() -> None:
    checks = plan(make_one_arm_spec({"train.ponder_weight": 0.5}, baseline=UT_BASELINE)).proofs
    assert "gradient" in checks[1].evidence


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("upperbound", "FLOPs"),
        ("published-break", "layers run"),
        ("no-gate", "weights"),
        ("no-act", "gradient"),
        ("longer", "training"),
        ("longer-inputs", "task"),
        ("deeper", "FLOPs"),
    ],
)
def test_evidence_names_the_change_of_the_arm(
    name: str, evidence: str, arm_checks: dict[str, ArmCheck]
) -> None:
    assert evidence in arm_checks[name].evidence


def test_compute_only_arms_change_neither_loss_nor_gradient(arm_checks: dict[str, ArmCheck]) -> None:
    for name in ("upperbound", "published-break"):
        assert not {"loss", "gradient", "weights"} & set(arm_checks[name].evidence), arm_checks[name].evidence
        assert arm_checks[name].loss == arm_checks["baseline"].loss


def test_check_contains_module_tree_parameters_and_flops(arm_checks: dict[str, ArmCheck]) -> None:
    baseline_check, gate_check, wide_check = (
        arm_checks["baseline"],
        arm_checks["no-gate"],
        arm_checks["wide-gate"],
    )
    assert gate_check.module_tree_removed == ("encoder.block.gate: FeedForward",)
    assert gate_check.module_tree_added == ()
    assert gate_check.parameters == baseline_check.parameters - (2 * 16 * 32 + 32 + 16)
    assert gate_check.flops_max < baseline_check.flops_max
    assert any("encoder.block.gate.inner.weight 64x16" in line for line in wide_check.module_tree_added)
    assert arm_checks["upperbound"].flops_min == baseline_check.flops_max
    assert arm_checks["no-halt-upperbound"].module_tree_removed == ("encoder.halt: HaltingProbability",)


def misspell_path(generator: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Delete a letter of a path."""
    name = generator.choice(sorted(arms))
    ((path, value),) = arms[name]["set"].items()
    position = generator.randrange(len("model."), len(path))
    misspelt = path[:position] + path[position + 1 :]
    return {**arms, name: {**arms[name], "set": {misspelt: value}}}


def set_wrong_value(generator: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Set a field to a value of another type."""
    name = generator.choice(sorted(arms))
    ((path, _),) = arms[name]["set"].items()
    return {**arms, name: {**arms[name], "set": {path: generator.choice(["fasle", 7, 0.5])}}}


def swap_arms(generator: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Exchange the changes of two arms."""
    first_arm, second_arm = generator.sample(sorted(arms), 2)
    return {**arms, first_arm: arms[second_arm], second_arm: arms[first_arm]}


def add_arm_without_effect(generator: random.Random, arms: dict[str, Any]) -> dict[str, Any]:
    """Add an arm that sets an unused field, or sets a field to its present value."""
    path, value = generator.choice(
        [
            ("model.head_width", 8),
            ("model.feedforward_width", 32),
            ("model.gate_width", 32),
            ("model.kv", "states"),
            ("train.eval_batch_size", 64),
        ]
    )
    return {**arms, "extra": {"why": "a slip", "set": {path: value}}}


MUTATIONS: list[Callable[[random.Random, dict[str, Any]], dict[str, Any]]] = [
    misspell_path,
    set_wrong_value,
    add_arm_without_effect,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_every_mutant_is_refused(mutate: Callable[..., dict[str, Any]], seed: int) -> None:
    arms = mutate(random.Random(seed), {name: dict(arm) for name, arm in ARMS.items()})
    without_search = {name: {**arm, "drop": []} for name, arm in arms.items()}
    with pytest.raises(PlanError):
        plan(make_spec(arms=without_search))


def test_original_arms_are_accepted() -> None:
    sweep_plan = plan(make_spec(arms={name: {**arm, "drop": []} for name, arm in ARMS.items()}))
    assert len(sweep_plan.arms) == 5
    assert not any(check.notes for check in sweep_plan.proofs)


@pytest.mark.parametrize("seed", range(2))
def test_mutant_that_contradicts_only_its_name_gets_a_note(
    seed: int,
) -> None:
    arms = swap_arms(random.Random(seed), {name: dict(arm) for name, arm in ARMS.items()})
    sweep_plan = plan(make_spec(arms={name: {**arm, "drop": []} for name, arm in arms.items()}))
    assert any(check.notes for check in sweep_plan.proofs)


def test_name_that_contradicts_the_change_gets_a_note() -> None:
    (note,) = plan(make_one_arm_spec({"model.halt.transition": False}, name="minus-gate")).proofs[1].notes
    assert "removes gate, but the arm changes model.halt.transition" in note


def test_effect_away_from_the_initial_weights_counts() -> None:
    """With two layers, neither threshold is reached at the initial probability of about one half."""
    check = plan(
        make_one_arm_spec({"model.halt.threshold": 0.99}, baseline=make_baseline(max_layers=2))
    ).proofs[1]
    assert check.evidence


def test_arm_that_changes_more_than_it_declares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may change other settings without the spec's knowledge."""
    from trainables.models import universal

    class RewritingConfig(universal.Config):
        def model_dump(self, **options: Any) -> dict[str, Any]:
            return super().model_dump(**options) | ({} if self.gate else {"width": 8})

    monkeypatch.setattr(universal, "Config", RewritingConfig)
    with expect_faults("conflicting-fields", "arms.arm.set.model.gate"):
        planner.plan(make_one_arm_spec({"model.gate": False}))


def test_loss_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "objective", lambda output, config: output.loss.sum() * torch.inf)
    with expect_faults("arm-cannot-be-trained", "baseline"):
        planner.plan(make_spec())


def test_flash_attention_in_32_bits_is_refused() -> None:
    with expect_faults("invalid-value", "baseline.model.attention"):
        plan(make_spec(baseline=make_baseline(attention="flash")))


def test_probes_of_equal_settings_are_exactly_equal() -> None:
    """Only exact equality makes a difference of one bit meaningful."""
    faults = Faults(make_spec())
    (arm,) = resolve(make_spec(), faults)
    first_probe, second_probe = Probe(), Probe()
    for probe_pass in (LEARNS, LEARNS_MOVED, *READS):
        assert first_probe.measure(arm.system, probe_pass) == second_probe.measure(arm.system, probe_pass)
    assert first_probe.measure(arm.system, READS[0]) != first_probe.measure(arm.system, READS[1])


def test_dimension_without_effect_is_refused() -> None:
    arms = {**ARMS, "no-halt": {**ARMS["no-halt"], "drop": ["model.halt.threshold"]}}
    with expect_faults("param-has-no-effect", "arms.no-halt"):
        plan(make_full_spec(arms=arms))


DROPOUT = {"also": {"model.dropout": {"float": [0.0, 0.3]}}, "trials_per_arm": 2}


def test_dimension_ignored_by_the_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm's value is between the ends of the range, and models of all three values are equal."""
    build, dropouts = probe.build_model, set()

    def build_without_dropout(config: Any, *arguments: Any) -> Any:
        dropouts.add(config.dropout)
        return build(config.model_copy(update={"dropout": 0.1}), *arguments)

    monkeypatch.setattr(probe, "build_model", build_without_dropout)
    with expect_faults("param-has-no-effect", "search.also.model.dropout"):
        planner.plan(make_full_spec(arms={}, posthoc={}, search={**SEARCH, "spaces": [], **DROPOUT}))
    assert dropouts == {0.0, 0.1, 0.3}
