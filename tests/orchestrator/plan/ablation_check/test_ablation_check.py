"""The ablation check accepts published arms, and refuses arms and ranges that the code ignores."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from orchestrator.plan import planner
from orchestrator.plan.ablation_check import passes, probe
from orchestrator.plan.types import ArmCheck
from tests.orchestrator.plan.small_specs import (
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
    "no-act": {"train.ponder_weight": 0.0},
    "mean-pool": {"model.pooling": "mean"},
    "kv-from-s": {"model.kv": "mixture"},
    "prefix": {"model.halt.rule": "prefix"},
    "ut": {
        "model.gate": False,
        "model.pooling": "mean",
        "model.halt.unit": "token",
        "model.halt.transition": False,
    },
    "transformer": {"model.name": "transformer", "model.pooling": "mean"},
    "deeper": {"model.max_layers": 9},
    "wide-gate": {"model.gate_width": 64},
    "longer": {"train.steps": 200},
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


def test_published_arms_are_accepted_with_evidence_of_their_change(arm_checks: dict[str, ArmCheck]) -> None:
    assert all(arm_checks[name].evidence for name in GUT)
    checks = plan(make_spec(baseline=UT_BASELINE, arms=arms_of(UT))).proofs
    assert all(check.evidence for check in checks[1:])
    expected = {
        "upperbound": "FLOPs",
        "published-break": "layers run",
        "no-gate": "weights",
        "no-act": "gradient",
        "longer": "training",
        "longer-inputs": "task",
        "deeper": "FLOPs",
    }
    assert [name for name, text in expected.items() if text not in arm_checks[name].evidence] == []


def test_compute_only_arms_change_neither_loss_nor_gradient(arm_checks: dict[str, ArmCheck]) -> None:
    for name in ("upperbound", "published-break"):
        assert not {"loss", "gradient", "weights"} & set(arm_checks[name].evidence), arm_checks[name].evidence
        assert arm_checks[name].loss == arm_checks["baseline"].loss


def test_check_contains_module_tree_parameters_and_flops(arm_checks: dict[str, ArmCheck]) -> None:
    baseline_check, gate_check = arm_checks["baseline"], arm_checks["no-gate"]
    assert gate_check.module_tree_removed == ("encoder.block.gate: FeedForward",)
    assert gate_check.module_tree_added == ()
    assert gate_check.parameters == baseline_check.parameters - (2 * 16 * 32 + 32 + 16)
    assert gate_check.flops_max < baseline_check.flops_max
    assert arm_checks["upperbound"].flops_min == baseline_check.flops_max


def test_effect_away_from_the_initial_weights_counts() -> None:
    """With two layers, neither threshold is reached at the initial probability of about one half."""
    spec = make_one_arm_spec({"model.halt.threshold": 0.99}, baseline=make_baseline(max_layers=2))
    assert plan(spec).proofs[1].evidence


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
