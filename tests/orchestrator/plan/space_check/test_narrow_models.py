"""What saves a plan time and must change nothing: weights that are drawn once, models that are narrow."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from orchestrator.plan.ablation_check import probe as probing
from orchestrator.plan.ablation_check.acting_settings import Sweep
from orchestrator.plan.ablation_check.differences import (
    LEARNS,
    LEARNS_MOVED,
    READS,
    differ,
    evidence,
    is_evidence,
)
from orchestrator.plan.ablation_check.probe import NARROW, Probe
from orchestrator.plan.training_code.settings import System, checked
from trainables.assembly import build_model
from trainables.counting import Flops, only_counted_kernels
from trainables.data.synthetic import synthetic_batch

WIDE = {"name": "universal", "width": 256, "heads": 4, "max_layers": 3, "gate": True}


def system(**model: Any) -> System:
    raw = {"task": {"name": "listops"}, "model": {**WIDE, **model}, "train": {"steps": 100, "batch_size": 4}}
    found = checked(raw)
    assert isinstance(found, System), found
    return found


def test_every_width_is_divided_and_nothing_else_changes() -> None:
    probe = Probe()
    wide, narrow = system(gate_width=384), probe.narrow(system(gate_width=384))
    before, after = wide.settings["model"], narrow.settings["model"]
    assert {name for name, value in after.items() if value != before[name]} == {"width", "gate_width"}
    assert (after["width"], after["gate_width"]) == (NARROW, 96)
    assert probe.narrow(narrow) is narrow


def test_models_that_cannot_both_be_narrowed_are_run_as_they_are() -> None:
    one, other = system(), system(heads=128)
    probe = Probe()
    assert probe.narrow(one) is not one
    assert probe.narrow(other) is other, "64 is no multiple of 128"
    assert probe.narrow_pair(one, other) == (one, other)
    wider = system(heads=256, width=512)
    assert probe.narrow_pair(one, wider) == (one, wider)


@pytest.fixture(scope="module")
def seen() -> Probe:
    """Which has run the wide model that others are compared with."""
    return Probe()


@pytest.mark.parametrize("written", [{"head_width": 64}, {"feedforward_width": 512}, {"gate_width": 512}])
def test_a_width_that_is_written_out_is_no_difference(written: dict[str, int], seen: Probe) -> None:
    assert not differ(seen, system(), system(**written), Sweep())
    assert not is_evidence(evidence(seen, system(), system(**written), Sweep()))


def test_a_difference_that_narrow_models_do_not_show_is_found_in_those_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gated_where_narrow(model: Any, *rest: Any) -> torch.nn.Module:
        gate = model.gate or model.width <= NARROW
        return build_model(model.model_copy(update={"gate": gate}), *rest)

    monkeypatch.setattr(probing, "build_model", gated_where_narrow)
    assert differ(Probe(), system(), system(gate=False), Sweep())


def test_a_model_that_runs_again_has_its_first_weights() -> None:
    probe, made = Probe(), Probe().narrow(system(dropout=0.5))
    passes = (LEARNS, LEARNS_MOVED, *READS[:3])
    again = [probe.measure(made, asked) for asked in passes]
    assert again == [Probe().measure(made, asked) for asked in passes]
    assert again[0] != again[1], "other weights must show, for this test to try anything"


def test_operations_are_counted_as_pytorch_counts_them() -> None:
    made = Probe().narrow(system())
    model, batch = build_model(made.model, made.shape, 0).eval(), synthetic_batch(made.shape, 2, 16, 0)
    with only_counted_kernels(), FlopCounterMode(display=False) as known:
        model(batch)
    with only_counted_kernels(), Flops() as counted:
        model(batch)
    assert counted.total == known.get_total_flops() > 0
