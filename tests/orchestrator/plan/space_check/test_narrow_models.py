"""Shared weights and narrow models save time of a plan without changing its results."""

from typing import Any

import pytest
import torch

from orchestrator.plan.ablation_check import probe as probing
from orchestrator.plan.ablation_check.differences import (
    LEARNS,
    LEARNS_MOVED,
    READS,
    differ,
    evidence,
    is_evidence,
)
from orchestrator.plan.ablation_check.effective_settings import Sweep
from orchestrator.plan.ablation_check.probe import NARROW, Probe
from orchestrator.plan.training_code.settings import System, checked
from trainables.assembly import build_model

WIDE = {"name": "universal", "width": 256, "heads": 4, "max_layers": 3, "gate": True}


def make_system(**model: Any) -> System:
    raw = {"task": {"name": "listops"}, "model": {**WIDE, **model}, "train": {"steps": 100, "batch_size": 4}}
    system = checked(raw)
    assert isinstance(system, System), system
    return system


def test_every_width_is_divided_and_nothing_else_changes() -> None:
    probe = Probe()
    wide, narrow = make_system(gate_width=384), probe.narrow(make_system(gate_width=384))
    before, after = wide.settings["model"], narrow.settings["model"]
    assert {name for name, value in after.items() if value != before[name]} == {"width", "gate_width"}
    assert (after["width"], after["gate_width"]) == (NARROW, 96)
    assert probe.narrow(narrow) is narrow


def test_models_that_cannot_both_be_narrowed_are_run_unchanged() -> None:
    first, second = make_system(), make_system(heads=128)
    probe = Probe()
    assert probe.narrow(first) is not first
    assert probe.narrow(second) is second, "64 is no multiple of 128"
    assert probe.narrow_pair(first, second) == (first, second)
    wider = make_system(heads=256, width=512)
    assert probe.narrow_pair(first, wider) == (first, wider)


@pytest.fixture(scope="module")
def shared_probe() -> Probe:
    """Return a probe that keeps results of the wide model for all comparisons."""
    return Probe()


@pytest.mark.parametrize("explicit", [{"head_width": 64}, {"feedforward_width": 512}, {"gate_width": 512}])
def test_explicit_default_width_is_no_difference(explicit: dict[str, int], shared_probe: Probe) -> None:
    assert not differ(shared_probe, make_system(), make_system(**explicit), Sweep())
    assert not is_evidence(evidence(shared_probe, make_system(), make_system(**explicit), Sweep()))


def test_difference_hidden_in_narrow_models_is_found_in_the_original_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build_narrow_models_with_a_gate(model: Any, *arguments: Any) -> torch.nn.Module:
        gate = model.gate or model.width <= NARROW
        return build_model(model.model_copy(update={"gate": gate}), *arguments)

    monkeypatch.setattr(probing, "build_model", build_narrow_models_with_a_gate)
    assert differ(Probe(), make_system(), make_system(gate=False), Sweep())


def test_model_that_runs_again_has_its_initial_weights() -> None:
    probe, narrow_system = Probe(), Probe().narrow(make_system(dropout=0.5))
    passes = (LEARNS, LEARNS_MOVED, *READS[:3])
    measurements = [probe.measure(narrow_system, probe_pass) for probe_pass in passes]
    assert measurements == [Probe().measure(narrow_system, probe_pass) for probe_pass in passes]
    assert measurements[0] != measurements[1], "moved weights must change the measurement"
