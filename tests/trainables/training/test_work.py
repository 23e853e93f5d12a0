"""FLOPs of training and of evaluating samples agree with the formulas of plans."""

import numpy as np
import pytest

from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import resolve
from orchestrator.plan.estimate import price
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import rows_per_step
from orchestrator.plan.training_code.settings import System, checked
from orchestrator.spec.types import Spec
from trainables.costs import BACKWARD, depth_range, flops
from trainables.training.work import Work

UNIVERSAL = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4, "halt": {"unit": "sequence"}}
GUTLB = {"name": "gutlb", "width": 16, "heads": 2, "max_layers": 3}


def system_of(model: dict) -> System:
    task = {"name": "listops", "train_length_max": 40}
    found = checked({"model": model, "task": task, "train": {"steps": 3, "batch_size": 5}})
    assert isinstance(found, System), found
    return found


@pytest.mark.parametrize("model", [UNIVERSAL, GUTLB])
def test_a_step_costs_what_the_plan_says(model):
    system = system_of(model)
    raw = {"name": "x", "question": "?", "baseline": {"task": dict(system.settings["task"]), "model": model}}
    raw["baseline"]["train"] = {"steps": 3, "batch_size": 5}
    spec = Spec.model_validate({**raw, "confirm": {"seeds": [1]}})
    (arm,) = resolve(spec, Faults(spec), lambda _: None)
    assert (
        Work(system.model, system.shape, system.train).step
        == price(arm, Probe(), None, calibrate=False).train_flops_max
    )
    assert rows_per_step(system) == 5


@pytest.mark.parametrize("model", [UNIVERSAL, GUTLB])
def test_samples_cost_the_layers_that_were_run_on_their_own_lengths(model):
    system = system_of(model)
    work = Work(system.model, system.shape, system.train)
    most = depth_range(system.model, 40)[1]
    all_layers = [flops(system.model, system.shape, length, most) for length in (7, 40)]
    assert work.samples(np.array([7, 40]), np.ones(2)) == pytest.approx(np.mean(all_layers))
    one = flops(system.model, system.shape, 40, 1)
    assert work.samples(np.array([40]), np.array([1 / most])) == pytest.approx(one)
    assert work.step == BACKWARD * 5 * flops(system.model, system.shape, system.shape.length_max, most)
