"""The Sparse Universal Transformer learns logical inference, and halts earlier at a lower threshold."""

from typing import Any

import numpy as np
import pytest

from trainables.assembly import build_model
from trainables.data.split import Split, content_hash
from trainables.tasks import logical_inference
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner, run_step
from trainables.types import Batch

CONFIG = logical_inference.Config.model_validate({"pairs": 10_000, "test_pairs": 10_000})
SHAPE = logical_inference.shape(CONFIG)
SUT: dict[str, Any] = {
    "name": "sut",
    "width": 32,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "gating_dropout": 0.0,
    "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 8, "window": 1},
    "feedforward": {"experts": 4, "active": 2, "width": 32},
}


def learner(raw: dict[str, Any], **train: Any) -> Learner:
    settings = {"steps": 1000, "lr": 3e-3, "weight_decay": 0.0, "auxiliary_weight": 0.01}
    return Learner(build_model(SUT | raw, SHAPE, seed=1), train_config(settings | train), seed=1)


def evaluate_at_threshold(student: Learner, threshold: float, batch: Batch) -> dict[str, float]:
    """Evaluate the trained weights under another halting threshold."""
    evaluated = learner({"halt": {"threshold": threshold}})
    evaluated.model.load_state_dict(student.model.state_dict())
    return evaluate(evaluated, [batch])


@pytest.mark.slow
def test_lower_threshold_after_training_saves_steps() -> None:
    """Accuracy hardly drops down to a threshold of one half, because training penalised halting late."""
    examples, steps = 32, 80
    table = logical_inference.build(CONFIG, "train")
    batch = Split(table, SHAPE.pad_id, content_hash(table)).batch(np.arange(examples))
    student = learner({}, batch_size=examples, ponder_weight=0.002)
    for step in range(steps):
        run_step(student, batch, step)
    thresholds = [number / 10 for number in range(1, 10)]
    evaluations = [evaluate_at_threshold(student, threshold, batch) for threshold in (*thresholds, 0.999)]
    saved_shares = [evaluation["saved"] for evaluation in evaluations]
    assert saved_shares == sorted(saved_shares, reverse=True)
    assert saved_shares[0] > saved_shares[-1] + 0.2
    trained_accuracy = evaluations[-1]["accuracy"]
    assert trained_accuracy > 0.9
    for threshold, evaluation in zip(thresholds, evaluations, strict=False):
        if threshold >= 0.5:
            assert evaluation["accuracy"] > trained_accuracy - 0.05
