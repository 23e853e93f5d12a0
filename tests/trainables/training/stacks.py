"""What tests of steps that several learners take at once share: learners, batches, and what must be alike."""

from collections.abc import Sequence
from typing import Any

import torch

from tests.trainables.training.steps import SHAPES, cases, small
from trainables.assembly import build_model, model_config, unstacked
from trainables.checkpoint import weights
from trainables.data.synthetic import synthetic_batch
from trainables.testing.arms import EXIT, having
from trainables.testing.cases import enliven
from trainables.training.config import train_config
from trainables.training.stacked_step import LearnerStack
from trainables.training.step import Learner, StepResult, one_step
from trainables.types import Batch, TaskShape

MEMBERS = 3
STEPS = 2
"""The second is taken with weights and moments that the first has left; of more is the test of optimisers."""
RATES = {
    "lr": 0.02,
    "schedule": "warmup",
    "warmup_steps": 2,
    "label_smoothing": 0.1,
    "clip": 0.5,
    "eps": 1e-3,
}
Raw = dict[str, Any]


def stackable() -> list[tuple[str, str]]:
    return [
        (name, head) for name, head in cases() if unstacked(model_config(small(name, SHAPES[head]))) is None
    ]


def learner(raw: Raw, shape: TaskShape, seed: int, device: str = "cpu", **train: Any) -> Learner:
    model = build_model(raw, shape, seed=seed).double().to(device)
    enliven(model, 8.0, 0.5)
    return Learner(model, train_config({"steps": 9} | RATES | train), seed=seed)


def batches(shape: TaskShape, step: int, rows: int = 5, device: str = "cpu") -> list[Batch]:
    """Of different widths."""
    found = [synthetic_batch(shape, rows, 6 + 2 * each, seed=10 * step + each) for each in range(MEMBERS)]
    return [each.to(torch.device(device)) for each in found]


def check_alike(one: Sequence[StepResult], other: Sequence[StepResult]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.row(), b.row(), rtol=1e-8, atol=1e-11)


def check_weights(one: Learner, other: Learner) -> None:
    ours, theirs = weights(one.model), weights(other.model)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-6, atol=1e-9, msg=name)


def check_stack(raw: Raw, shape: TaskShape, device: str = "cpu", **train: Any) -> None:
    # Where all of a batch halts at once, layers that are not run have no gradient, which is not a zero one.
    masked = having(raw, **{EXIT: "none"}) if EXIT in raw else raw
    apart, together = (
        [learner(each, shape, seed, device, **train) for seed in range(MEMBERS)] for each in (masked, raw)
    )
    stack = LearnerStack(together)
    for step in range(STEPS):
        given = batches(shape, step, device=device)
        alone = [one_step(each, batch, step) for each, batch in zip(apart, given, strict=True)]
        check_alike(stack.step(given, step), alone)
    for one, other in zip(apart, together, strict=True):
        check_weights(one, other)
