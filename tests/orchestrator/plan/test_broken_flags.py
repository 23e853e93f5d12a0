"""The ablation check finds no effect if code ignores a setting, or if nothing uses its weights."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    CHUNKED,
    SPARSE,
    UNIVERSAL,
    make_arms_spec,
    make_settings,
)
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults
from trainables import catalog

FLAGS: Mapping[str, tuple[Any, str, Any]] = {
    "gate": (UNIVERSAL, "gate", False),
    "no halt": (UNIVERSAL, "halt", None),
    "boundaries": (CHUNKED, "boundaries", True),
    "norm": (SPARSE, "norm", "pre"),
    "window": (SPARSE, "attention", {**SPARSE["attention"], "window": 4}),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_flag_ignored_by_the_code_is_refused(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is built as if the field were not set; formulas of costs still use the field."""
    model, field, value = FLAGS[flag]
    arm = make_arms_spec(make_settings(model=model), {"arm": {f"model.{field}": value}})
    assert plan(arm).proofs[1].evidence
    original_build, ignored_fields = probing.build_model, []

    def build_without_flag(config: Any, *arguments: Any) -> Any:
        if getattr(config, field) != getattr(original_config, field):
            ignored_fields.append(field)
        return original_build(config.model_copy(update={field: getattr(original_config, field)}), *arguments)

    original_config = config_class(model)(**model)
    monkeypatch.setattr(probing, "build_model", build_without_flag)
    with expect_faults("arm-has-no-effect", f"arms.arm.set.model.{field}"):
        planner.plan(arm)
    assert ignored_fields


def config_class(model: Mapping[str, Any]) -> Any:
    return catalog.config_class("models", model["name"])


@pytest.mark.parametrize("flag", ["gate", "norm"])
def test_weights_without_a_use_are_no_effect(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag adds a layer that the model never calls."""
    model, field, value = FLAGS[flag]
    original_build, original_config = probing.build_model, config_class(model)(**model)

    def build_with_unused_layer(config: Any, *arguments: Any) -> Any:
        built_model = original_build(
            config.model_copy(update={field: getattr(original_config, field)}), *arguments
        )
        if getattr(config, field) != getattr(original_config, field):
            device = next(built_model.parameters()).device
            built_model.forgotten = torch.nn.Linear(4, 4, device=device)
        return built_model

    monkeypatch.setattr(probing, "build_model", build_with_unused_layer)
    with expect_faults("arm-has-no-effect", f"arms.arm.set.model.{field}"):
        planner.plan(make_arms_spec(make_settings(model=model), {"arm": {f"model.{field}": value}}))
