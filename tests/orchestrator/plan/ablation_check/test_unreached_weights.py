"""Weights that no gradient reaches are named, in large models too; those that learn later are not."""

from typing import Any

import pytest
import torch

from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from tests.orchestrator.plan.ablation_check.test_empty_arms import CHUNKED, SPARSE, spec_of, system
from tests.support.specs.planned import plan


def test_a_weight_that_no_gradient_reaches_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    build = probing.build_model

    def with_idle(config: Any, *rest: Any) -> Any:
        made = build(config, *rest)
        if not config.gate:
            made.forgotten = torch.nn.Linear(4, 4, device=next(made.parameters()).device)
        return made

    monkeypatch.setattr(probing, "build_model", with_idle)
    made = planner.plan(spec_of(system(), {"arm": {"model.gate": False}}))
    (note,) = made.proofs[1].notes
    named = "no gradient reaches forgotten.weight, forgotten.bias at any of the weights tried"
    assert note == f"{named}, nor on inputs of 100 tokens"


def test_what_is_before_a_layer_that_begins_with_zeros_is_not_named() -> None:
    (made,) = plan(spec_of(system(model=SPARSE), {})).proofs
    assert made.notes == ()


def test_a_memory_that_only_the_second_chunk_reads_is_not_named() -> None:
    chunked = system(model={**CHUNKED, "chunk": {"size": 20}})
    arms = plan(spec_of(chunked, {"arm": {"model.memory.slots": 5}})).proofs
    assert [arm.notes for arm in arms] == [(), ()]
