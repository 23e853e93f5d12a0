"""On CUDA compiled steps are what others are, in both precisions, and other sizes compile nothing anew."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.gpu.devices import on_devices
from tests.support.box import built, every
from trainables.assembly import model_config
from trainables.regions.compiling import Compiler
from trainables.testing.arms import EXIT, having
from trainables.testing.cases import SEED, batch
from trainables.testing.exits import modes_of
from trainables.testing.fast_paths import VARIED
from trainables.training.config import train_config
from trainables.training.step import Learner, one_step

COMPILED = every("compiled")
BACKENDS = {"cpu": "eager", "cuda": "inductor"}
"""Generating code for a CPU takes a minute; the contract of models makes graphs of gradients there."""
EXACT = {"dropout": 0.2, "attention_dropout": 0.1, "attention": "math", "kernel": "math"}
"""Masks of attention's fused kernels depend on the layout of rows, which is another in compiled steps."""
STEPS = 3
AGREE = {"fp32": (1e-3, 1e-4), "bf16": (0.1, 0.05)}
"""Relative and absolute difference of losses and norms that rounding explains."""


def learner(raw: dict[str, Any], device: str, compiler: Compiler | None, precision: str) -> Learner:
    model: nn.Module = built(raw).float().to(device)
    config = train_config({"steps": 99, "lr": 1e-3, "precision": precision})
    return Learner(model, config, seed=SEED, compiler=compiler)


@pytest.mark.parametrize("precision", AGREE)
@on_devices(COMPILED, rehearse=[])
def test_compiled_steps_are_what_others_are(case: dict[str, Any], device: str, precision: str) -> None:
    check_steps(case, device, precision)


@pytest.mark.slow
def test_so_it_is_on_a_cpu() -> None:
    check_steps(COMPILED["transformer, small"], "cpu", "fp32")


def check_steps(case: dict[str, Any], device: str, precision: str) -> None:
    rtol, atol = AGREE[precision]
    modes = modes_of(model_config(case)) or ("",)
    for mode in modes if precision == "fp32" else modes[-1:]:
        raw = having(case, **({EXIT: mode} if mode else {}), **EXACT)
        compiler = Compiler(BACKENDS[device])
        plain, compiled = (learner(raw, device, each, precision) for each in (None, compiler))
        met = 0
        for step, lengths in enumerate(VARIED * (STEPS if device == "cuda" else 1)):
            given = batch(lengths).to(torch.device(device))
            compiled.model.load_state_dict(plain.model.state_dict())  # differences do not add up
            compiled.optimizer.load_state_dict(plain.optimizer.state_dict())
            expected, found = one_step(plain, given, step).row(), one_step(compiled, given, step).row()
            what = f"{mode} step {step} on rows of {lengths}"
            torch.testing.assert_close(
                found, expected, rtol=rtol, atol=atol, msg=lambda m, w=what: f"{w}: {m}"
            )
            met = compiler.graphs if step < len(VARIED) else met
        assert compiler.graphs == met > 0
