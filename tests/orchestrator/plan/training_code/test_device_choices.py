"""Plans name the choices that settings leave to the device."""

import re

import pytest

from orchestrator.plan.training_code.device_choices import device_lines
from tests.orchestrator.plan.small_specs import make_baseline, make_spec
from tests.support.specs.planned import plan


@pytest.mark.parametrize(
    ("gpus", "precision", "mode", "kernel"),
    [(0, "fp32", "compact", "math"), (1, "bf16", "batch", "FlashAttention 2 of PyTorch")],
)
def test_early_exit_and_attention_kernel_are_named(
    gpus: float, precision: str, mode: str, kernel: str
) -> None:
    settings = make_baseline()
    settings["train"] = {**settings["train"], "precision": precision}
    arms = {"no-halt": {"why": "as published", "set": {"model.halt": None}}}
    lines = device_lines(plan(make_spec(arms=arms, baseline=settings, resources={"gpus": gpus})))
    exits, kernels = lines
    assert re.search(rf"early_exit: auto .*{mode} \(baseline\)", exits)
    assert kernel in kernels
