"""Determine the names of the metrics that a search trial reports, by running the reporting code."""

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import nn

from orchestrator.plan.training_code.settings import ParsedSettings
from trainables.task_catalog import splits
from trainables.training import work, workload
from trainables.training.accumulator import Accumulator
from trainables.training.config import TrainConfig
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner, StepResult
from trainables.training.writing import reference_answers, scores
from trainables.types import Batch, Output

VALID = "valid"


def reported_metrics(system: ParsedSettings, batch: Batch, output: Output) -> tuple[str, ...]:
    """Return every metric that an objective can name, given the output of the system for a batch."""
    evaluated = evaluate(cast(Learner, _Replay(output, system.train)), [batch])
    work_names = (metric.name for metric in work.metrics if not metric.split)
    measured_names = (*evaluated, *answer_metrics(system, batch), *work_names)
    trained_names = _training_metrics(system.train)
    if any(info.streamed for info in splits(system.task)):
        trained_names = tuple(name for name in trained_names if name != workload.EPOCH_SECONDS)
    return (*(f"{VALID}/{name}" for name in measured_names), *trained_names)


def answer_metrics(system: ParsedSettings, batch: Batch) -> tuple[str, ...]:
    """Return the names of the metrics of written answers, without their split."""
    if system.shape.head != "sequence":
        return ()
    right = reference_answers(batch)
    return tuple(scores(system.task, right, right))


def _training_metrics(train: TrainConfig) -> tuple[str, ...]:
    accumulator = Accumulator(device=torch.device("cpu"), scaled=train.precision == "fp16")
    tensor = torch.ones(())
    accumulator.add(
        0,
        StepResult(
            loss=tensor, ponder=tensor, gradient_norm=tensor, hits=tensor, counts=tensor, tokens=tensor
        ),
    )
    accumulator.flush()
    metrics = [metric for metric in (*workload.metrics, *work.metrics) if metric.split]
    return (*accumulator.metrics(), *(f"{metric.split}/{metric.name}" for metric in metrics))


class _Replay:
    """Replacement for a learner in `evaluate` that returns a stored output; a real learner takes a second."""

    def __init__(self, output: Output, config: TrainConfig) -> None:
        self.model = _Answer(output)
        self.seed = 0
        self.config = config

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context without effect."""
        return nullcontext()


class _Answer(nn.Module):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def forward(self, batch: Batch) -> Output:  # noqa: ARG002
        """Return the stored output for any batch."""
        return self.output
