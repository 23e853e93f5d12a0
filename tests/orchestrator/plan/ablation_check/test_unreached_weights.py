"""Weights that no gradient reaches are named; weights that learn later are not."""

import re
from typing import Any

import pytest
import torch

from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from tests.orchestrator.plan.ablation_check.test_empty_arms import (
    CHUNKED,
    SPARSE,
    make_arms_spec,
    make_settings,
)
from tests.support.specs.planned import plan


def test_weight_that_no_gradient_reaches_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original_build = probing.build_model

    def build_with_unused_layer(config: Any, *arguments: Any) -> Any:
        model = original_build(config, *arguments)
        if not config.gate:
            model.forgotten = torch.nn.Linear(4, 4, device=next(model.parameters()).device)
        return model

    monkeypatch.setattr(probing, "build_model", build_with_unused_layer)
    sweep_plan = planner.plan(make_arms_spec(make_settings(), {"arm": {"model.gate": False}}))
    (note,) = sweep_plan.proofs[1].notes
    assert re.search(r"forgotten\.weight, forgotten\.bias .* 100 ", note)


def test_weights_before_a_zero_initialised_layer_are_not_named() -> None:
    (check,) = plan(make_arms_spec(make_settings(model=SPARSE), {})).proofs
    assert check.notes == ()


def test_memory_read_only_by_the_second_chunk_is_not_named() -> None:
    chunked = make_settings(model={**CHUNKED, "chunk": {"size": 20}})
    arms = plan(make_arms_spec(chunked, {"arm": {"model.memory.slots": 5}})).proofs
    assert [arm.notes for arm in arms] == [(), ()]
