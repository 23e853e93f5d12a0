"""A change of a model that the code does not obey, or whose weights nothing reads, is seen as no effect."""

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan import planner
from orchestrator.plan.ablation_check import probe as probing
from tests.orchestrator.plan.ablation_check.test_empty_arms import CHUNKED, SPARSE, UNIVERSAL, spec_of, system
from tests.support.specs.planned import plan
from trainables import catalog

FLAGS: Mapping[str, tuple[Any, str, Any]] = {
    "gate": (UNIVERSAL, "gate", False),
    "unit": (UNIVERSAL, "halt", {"unit": "token"}),
    "no halt": (UNIVERSAL, "halt", None),
    "pooling": (UNIVERSAL, "pooling", "mean"),
    "early exit": (UNIVERSAL, "early_exit", "none"),
    "boundaries": (CHUNKED, "boundaries", True),
    "chunks": (CHUNKED, "chunk", {"by": "size", "size": 5}),
    "norm": (SPARSE, "norm", "pre"),
    "window": (SPARSE, "attention", {**SPARSE["attention"], "window": 4}),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_that_is_broken_in_the_code_is_seen(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is built as if the field were not set; formulas of costs still know it."""
    model, field, value = FLAGS[flag]
    arm = spec_of(system(model=model), {"arm": {f"model.{field}": value}})
    assert plan(arm).proofs[1].evidence
    build, broken = probing.build_model, []

    def deaf(config: Any, *rest: Any) -> Any:
        if getattr(config, field) != getattr(as_is, field):
            broken.append(field)
        return build(config.model_copy(update={field: getattr(as_is, field)}), *rest)

    as_is = type_of(model)(**model)
    monkeypatch.setattr(probing, "build_model", deaf)
    with pytest.raises(PlanError, match=r"arm changes nothing against baseline"):
        planner.plan(arm)
    assert broken


def type_of(model: Mapping[str, Any]) -> Any:
    return catalog.config_class("models", model["name"])


@pytest.mark.parametrize("flag", ["gate", "pooling", "norm", "boundaries"])
def test_weights_that_nothing_reads_are_no_effect(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that adds a layer and forgets to call it."""
    import torch

    model, field, value = FLAGS[flag]
    build, as_is = probing.build_model, type_of(model)(**model)

    def idle(config: Any, *rest: Any) -> Any:
        made = build(config.model_copy(update={field: getattr(as_is, field)}), *rest)
        if getattr(config, field) != getattr(as_is, field):
            device = next(made.parameters()).device
            made.forgotten = torch.nn.Linear(4, 4, device=device)
        return made

    monkeypatch.setattr(probing, "build_model", idle)
    with pytest.raises(PlanError, match=r"They differ in .*weights.*, which nothing uses"):
        planner.plan(spec_of(system(model=model), {"arm": {f"model.{field}": value}}))
