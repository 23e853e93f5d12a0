"""Learning rates equal closed forms, and the one-cycle schedule equals PyTorch's."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.training.config import TrainConfig, train_config
from trainables.training.schedule import beta1, learning_rate


def config(
    schedule: str, *, warmup: int, steps: int = 5000, lr: float = 0.05, **options: object
) -> TrainConfig:
    return train_config({"steps": steps, "lr": lr, "schedule": schedule, "warmup_steps": warmup, **options})


RATES = {
    "warmup": {0: 0.05 / 1000, 499: 0.025, 999: 0.05, 4999: 0.05},
    "rsqrt": {0: 0.05 / 1000 / math.sqrt(1000), 999: 1.5811388300841898e-3, 3999: 0.05 / math.sqrt(4000)},
}


@pytest.mark.parametrize("schedule", RATES)
def test_learning_rate_follows_its_schedule(schedule: str) -> None:
    for step, expected in RATES[schedule].items():
        assert learning_rate(config(schedule, warmup=1000), step) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 5e-4 / 175),
        (174, 5e-4),
        (175, 5e-4),
        (175 + (5000 - 175) // 3, 5e-4 * 0.5 * (1 + math.cos(math.pi * 1608 / 4825))),
        (4999, 5e-4 * 0.5 * (1 - math.cos(math.pi / 4825))),
    ],
)
def test_cosine_falls_to_zero(step: int, expected: float) -> None:
    assert learning_rate(config("cosine", warmup=175, lr=5e-4), step) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.1), (50, 1.0), (75, 0.5), (99, 0.000986636)])
def test_cosine_holds_its_peak(step: int, expected: float) -> None:
    config_ = config("cosine", warmup=10, steps=100, lr=1.0, hold_steps=40)
    assert learning_rate(config_, step) == pytest.approx(expected, rel=1e-5)


@given(steps=st.integers(2, 60), warmup=st.integers(2, 60), lr=st.floats(1e-6, 10))
def test_linear_schedule_equals_pytorchs_one_cycle(steps: int, warmup: int, lr: float) -> None:
    warmup = min(warmup, steps)
    schedule_config = config("linear", warmup=warmup, steps=steps, lr=lr, onecycle_beta1=True)
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns without optimizer.step() between steps
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=lr, total_steps=steps, pct_start=warmup / steps, anneal_strategy="linear"
        )
        for step in range(steps):
            group = optimizer.param_groups[0]
            assert learning_rate(schedule_config, step) == pytest.approx(group["lr"], rel=1e-9)
            assert beta1(schedule_config, step) == pytest.approx(group["betas"][0], rel=1e-9)
            if step < steps - 1:
                scheduler.step()
