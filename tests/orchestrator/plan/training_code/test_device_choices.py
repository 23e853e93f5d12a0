"""Plans name the choices that settings leave to the device."""

from typing import Any

import pytest

from orchestrator.plan.training_code.device_choices import device_lines
from tests.orchestrator.plan.small import baseline, spec
from tests.support.specs.planned import plan


@pytest.mark.parametrize(
    ("gpus", "precision", "mode", "kernel"),
    [
        (0, "fp32", "compact", "math"),
        (1, "fp32", "batch", "sdpa of PyTorch"),
        (0.5, "tf32", "batch", "sdpa of PyTorch"),
        (1, "bf16", "batch", "FlashAttention 2 of PyTorch"),
    ],
)
def test_early_exit_and_kernel_are_named(gpus: float, precision: str, mode: str, kernel: str) -> None:
    written = baseline()
    written["train"] = {**written["train"], "precision": precision}
    arms = {"no-halt": {"why": "as published", "set": {"model.halt": None}}}
    found = device_lines(plan(spec(arms=arms, baseline=written, resources={"gpus": gpus})))
    exits, kernels = found
    assert f"early_exit: auto is {mode} (baseline)" in exits
    assert f"attention runs by {kernel}" in kernels


def test_nothing_is_said_of_what_is_set() -> None:
    written: dict[str, Any] = baseline(early_exit="batch")
    (line,) = device_lines(plan(spec(baseline=written)))
    assert "early_exit" not in line
