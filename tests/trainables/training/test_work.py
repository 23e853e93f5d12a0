"""FLOPs of training and evaluation agree with the formulas of plans."""

import numpy as np
import pytest

from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import resolve_built_in_arms
from orchestrator.plan.estimate import estimate_arm
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import rows_per_step
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from orchestrator.spec.types import Spec
from trainables.costs import STEP_TO_FORWARD_FLOPS, depth_range, flops
from trainables.training.work import FlopsCalculator

UNIVERSAL = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4, "halt": {"unit": "sequence"}}
GUTLB = {"name": "gutlb", "width": 16, "heads": 2, "max_layers": 3}


def system_of(model: dict) -> ParsedSettings:
    task = {"name": "listops", "train_length_max": 40}
    system = parse_settings({"model": model, "task": task, "train": {"steps": 3, "batch_size": 5}})
    assert isinstance(system, ParsedSettings), system
    return system


@pytest.mark.parametrize("model", [UNIVERSAL, GUTLB])
def test_flops_of_a_step_equal_the_estimate_of_the_plan(model):
    system = system_of(model)
    raw = {"name": "x", "question": "?", "baseline": {"task": dict(system.settings["task"]), "model": model}}
    raw["baseline"]["train"] = {"steps": 3, "batch_size": 5}
    spec = Spec.model_validate({**raw, "confirm": {"seeds": [1]}})
    (arm,) = resolve_built_in_arms(spec, Faults(spec), lambda _: None)
    assert (
        FlopsCalculator(system.model, system.shape, system.train).step_flops
        == estimate_arm(arm, Probe(), None, calibrate=False).train_flops_max
    )
    assert rows_per_step(system) == 5


@pytest.mark.parametrize("model", [UNIVERSAL, GUTLB])
def test_flops_of_samples_depend_on_lengths_and_computed_layers(model):
    system = system_of(model)
    work = FlopsCalculator(system.model, system.shape, system.train)
    max_layers = depth_range(system.model, 40)[1]
    all_layers = [flops(system.model, system.shape, length, max_layers) for length in (7, 40)]
    assert work.sample_flops(np.array([7, 40]), np.ones(2)) == pytest.approx(np.mean(all_layers))
    one_layer = flops(system.model, system.shape, 40, 1)
    assert work.sample_flops(np.array([40]), np.array([1 / max_layers])) == pytest.approx(one_layer)
    assert work.step_flops == STEP_TO_FORWARD_FLOPS * 5 * flops(
        system.model, system.shape, system.shape.length_max, max_layers
    )
