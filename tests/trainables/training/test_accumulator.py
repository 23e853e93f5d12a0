"""The accumulator sums steps and reports the first step that is not finite."""

import math

import pytest
import torch

from trainables.protocol import Diverged
from trainables.training.accumulator import Accumulator
from trainables.training.step import StepResult

CPU = torch.device("cpu")


def result(*, loss: float = 1.0, norm: float = 2.0, hits: float = 1.0) -> StepResult:
    return StepResult(*map(torch.tensor, (loss, 0.5, norm, hits, 4.0, 10)))


def test_metrics_average_steps_and_predictions() -> None:
    accumulator = Accumulator(device=CPU, scaled=False)
    accumulator.add(0, result(loss=1.0, norm=2.0, hits=1.0))
    accumulator.add(1, result(loss=4.0, norm=6.0, hits=3.0))
    assert accumulator.tokens == 20.0
    assert accumulator.metrics() == {
        "train/loss": 2.5,
        "train/accuracy": 0.5,
        "train/ponder": 0.5,
        "train/grad_norm": 4.0,
    }


@pytest.mark.parametrize("nonfinite_values", [{"loss": math.nan}, {"loss": math.inf}, {"norm": math.inf}])
def test_nonfinite_step_raises_divergence(nonfinite_values: dict[str, float]) -> None:
    accumulator = Accumulator(device=CPU, scaled=False)
    accumulator.add(6, result())
    with pytest.raises(Diverged) as caught:
        accumulator.add(7, result(**nonfinite_values))
    assert caught.value.step == 8


def test_delayed_check_names_the_first_nonfinite_step() -> None:
    accumulator = Accumulator(device=torch.device("cuda"), scaled=False)
    for step, loss in enumerate([1.0, math.inf, math.nan]):
        accumulator.add(step, result(loss=loss))
    with pytest.raises(Diverged) as caught:
        accumulator.flush()
    assert (caught.value.step, caught.value.loss) == (2, math.inf)


def test_scaled_loss_counts_skipped_steps() -> None:
    accumulator = Accumulator(device=CPU, scaled=True)
    accumulator.add(0, result(norm=math.inf))
    accumulator.add(1, result(norm=3.0))
    assert accumulator.metrics()["train/skipped_steps"] == 1.0
    assert accumulator.metrics()["train/grad_norm"] == 3.0
    with pytest.raises(Diverged):
        accumulator.add(2, result(loss=math.nan))
