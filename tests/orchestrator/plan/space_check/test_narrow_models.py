"""Shared weights and narrow models save time of a plan without changing its results."""

from typing import Any

import pytest
import torch

from orchestrator.plan.ablation_check import probe as probing
from orchestrator.plan.ablation_check.differences import (
    EVALUATION_PASSES,
    MOVED_TRAINING_PASS,
    TRAINING_PASS,
    differ,
)
from orchestrator.plan.ablation_check.effective_settings import SweepFacts
from orchestrator.plan.ablation_check.probe import NARROW_WIDTH, Probe
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from trainables.assembly import build_model

WIDE = {"name": "universal", "width": 256, "heads": 4, "max_layers": 3, "gate": True}


def make_system(**model: Any) -> ParsedSettings:
    raw = {"task": {"name": "listops"}, "model": {**WIDE, **model}, "train": {"steps": 100, "batch_size": 4}}
    system = parse_settings(raw)
    assert isinstance(system, ParsedSettings), system
    return system


def test_difference_hidden_in_narrow_models_is_found_in_the_original_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build_narrow_models_with_a_gate(model: Any, *arguments: Any) -> torch.nn.Module:
        gate = model.gate or model.width <= NARROW_WIDTH
        return build_model(model.model_copy(update={"gate": gate}), *arguments)

    monkeypatch.setattr(probing, "build_model", build_narrow_models_with_a_gate)
    assert differ(Probe(), make_system(), make_system(gate=False), SweepFacts())


def test_model_that_runs_again_has_its_initial_weights() -> None:
    probe, narrow_system = Probe(), Probe().narrow(make_system(dropout=0.5))
    passes = (TRAINING_PASS, MOVED_TRAINING_PASS, *EVALUATION_PASSES[:3])
    measurements = [probe.measure(narrow_system, probe_pass) for probe_pass in passes]
    assert measurements == [Probe().measure(narrow_system, probe_pass) for probe_pass in passes]
    assert measurements[0] != measurements[1], "moved weights must change the measurement"
