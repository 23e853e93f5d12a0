"""What saves a plan time and must change nothing: weights that are drawn once, models that are narrow."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from orchestrator.errors import PlanError
from orchestrator.plan.ablation_check import probe as probing
from orchestrator.plan.ablation_check.acting_settings import Sweep
from orchestrator.plan.ablation_check.differences import LEARNS, LEARNS_MOVED, READS, differ, evidence, shows
from orchestrator.plan.ablation_check.passes import Measurements, Pass
from orchestrator.plan.ablation_check.probe import NARROW, Probe
from orchestrator.plan.planner import plan
from orchestrator.plan.training_code.settings import System, checked
from orchestrator.spec.types import Spec
from tests.orchestrator.plan.small import BASELINE, spec
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


class Watching(Probe):
    """Remembers how wide the models were that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: set[int] = set()

    def measure(self, made: System, asked: Pass, longest: int | None = None) -> Measurements:
        self.widths.add(made.settings["model"]["width"])
        return super().measure(made, asked, longest)


def test_a_difference_in_widths_alone_is_seen_in_models_divided_by_one_number() -> None:
    one, other = system(gate_width=128), system(gate_width=256)
    probe = Watching()
    assert differ(probe, one, other, Sweep())
    assert probe.widths == {NARROW}


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
    assert not shows(evidence(seen, system(), system(**written), Sweep()))


def test_a_difference_that_narrow_models_do_not_show_is_found_in_those_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gated_where_narrow(model: Any, *rest: Any) -> torch.nn.Module:
        gate = model.gate or model.width <= NARROW
        return build_model(model.model_copy(update={"gate": gate}), *rest)

    monkeypatch.setattr(probing, "build_model", gated_where_narrow)
    assert differ(Probe(), system(), system(gate=False), Sweep())


def test_other_differences_are_found_without_running_the_wide_models() -> None:
    probe = Watching()
    assert differ(probe, system(), system(gate=False), Sweep())
    assert probe.widths == {NARROW}


def wide(**arms: dict[str, Any]) -> Spec:
    made = {name: {"why": "because", "set": sets} for name, sets in arms.items()}
    return spec(baseline={**BASELINE, "model": WIDE}, arms=made)


def test_a_plan_says_with_what_its_wide_models_were_run() -> None:
    probe = Watching()
    found = plan(wide(plain={"model.gate": False}, wider={"model.width": 512}), probe=probe)
    assert [each.run_with for each in found.proofs] == [{"model.width": NARROW}] * 3
    assert probe.widths <= {NARROW, NARROW // 2}, "no wide model is run where narrow ones differ"
    assert [each.parameters for each in found.proofs[:2]] == [
        sum(map(torch.Tensor.numel, build_model(made.model, made.shape, 0, "meta").parameters()))
        for made in (system(), system(gate=False))
    ]
    assert not any(each.run_with for each in plan(spec()).proofs), "16 is narrow"


@pytest.mark.slow
def test_wide_arms_that_are_one_system_under_two_names_are_found() -> None:
    """The width that one of them writes out follows from another in the other."""
    arms = {"deep": {"model.max_layers": 4}, "deep-too": {"model.max_layers": 4, "model.head_width": 64}}
    with pytest.raises(PlanError, match="behaves as deep does, though its settings differ"):
        plan(wide(**arms))
    plan(wide(deep={"model.max_layers": 4}, other={"model.max_layers": 4, "model.head_width": 32}))
    whole = {"model.heads": 128, "model.max_layers": 4}  # 64 is no multiple of 128
    with pytest.raises(PlanError, match="behaves as thin does, though its settings differ"):
        plan(wide(thin=whole, too={**whole, "model.head_width": 2}))


def test_arms_that_cannot_be_run_alike_in_the_memory_there_is_are_no_twins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both can be run beside the baseline; the width of one of them lets the other be divided by 2 alone."""
    monkeypatch.setattr(probing, "_require_memory", narrow_alone)
    made = plan(wide(huge={"model.width": 1024}, odd={"model.gate_width": 258}))
    assert [each.name for each in made.arms] == ["baseline", "huge", "odd"]


def narrow_alone(structure: probing.Structure) -> None:
    if structure.parameters > 2_000_000:
        raise ValueError(f"memory must suffice, got {structure.parameters} parameters")


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
