"""Names of what a trial reports while searching, found by asking the code that reports it."""

import torch
from torch import nn

from orchestrator.plan.settings import System
from trainables.training.config import TrainConfig
from trainables.training.evaluate import evaluate
from trainables.training.interval import Interval
from trainables.training.step import Learner, StepResult
from trainables.types import Batch, Output

OF_INTERVAL = ("train/lr", "train/tokens_per_s")
"""What the workload adds to the sums of an interval."""
VALID = "valid"


def reported(system: System, batch: Batch, output: Output) -> tuple[str, ...]:
    """Every metric an objective can name, given what the system made of a batch."""
    on_cpu = system.train.model_copy(update={"precision": "fp32"})
    found = evaluate(Learner(_Replay(output), on_cpu, seed=0), [batch])
    return (*(f"{VALID}/{name}" for name in found), *_of_training(system.train))


def _of_training(train: TrainConfig) -> tuple[str, ...]:
    interval = Interval(device=torch.device("cpu"), scaled=train.precision == "fp16")
    one = torch.ones(())
    interval.add(0, StepResult(loss=one, ponder=one, gradient_norm=one, hits=one, counts=one, tokens=one))
    interval.flush()
    return (*interval.metrics(), *OF_INTERVAL)


class _Replay(nn.Module):
    """A model that answers with what another one said."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, batch: Batch) -> Output:  # noqa: ARG002
        """The answer, whatever was asked."""
        return self.output
