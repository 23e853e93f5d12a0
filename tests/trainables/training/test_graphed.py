"""Captured and replayed steps train like ordinary steps; on the CPU, captures are recordings."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.support.steps import SHAPES, learner, small_settings
from trainables.protocol import Job
from trainables.testing.cases import batch
from trainables.testing.contract import run_interrupted, run_uninterrupted
from trainables.testing.recorded import RecordingEngine
from trainables.testing.resuming import TASK
from trainables.training import Training
from trainables.training.graphed import SHAPES_MAX, Engine, Filler, GraphedPasses
from trainables.training.step import Learner, run_step
from trainables.types import Batch

SHAPE = SHAPES["classify"]
GUT = small_settings("universal", SHAPE)
BATCHES = ((5, 1, 9, 3, 7, 2, 2), (6, 6, 6, 6, 6, 6, 6), (20, 20, 20, 20, 11, 19, 20), (2, 8, 1, 1, 20, 4, 3))
"""Lengths of rows, which filler rows extend to 128 or 256 tokens."""


class RecordedTraining(Training):
    """A training with graphs recorded on the CPU."""

    def _engine(self) -> Engine:
        return RecordingEngine()


def graphed(**train: Any) -> Learner:
    graphed_learner = learner(GUT, SHAPE, **train)
    rows = -(-len(BATCHES[0]) // graphed_learner.config.accumulate)
    graphed_learner.graphs = GraphedPasses(
        graphed_learner, Filler.of(rows, SHAPE.length_max, SHAPE.pad_id), RecordingEngine()
    )
    return graphed_learner


def job(tmp_path: Path, *, graph: bool, model: dict[str, Any] | None = None, **train: Any) -> Job:
    settings = {"steps": 6, "batch_size": 6, "lr": 0.01, "report_every": 2, "graph": graph} | train
    model_settings = model or {"name": "universal", "width": 16, "heads": 2, "max_layers": 4}
    return Job(
        {"task": dict(TASK), "model": model_settings, "train": settings}, 1, data_dir=tmp_path / "data"
    )


@pytest.mark.parametrize(
    "train",
    [{"accumulate": 3}, {"clip": 0.1, "ema": 0.5, "label_smoothing": 0.2, "weight_decay": 0.5}],
    ids="-".join,
)
def test_graphed_steps_lead_to_the_same_weights(train: dict[str, Any]) -> None:
    graphed_learner, plain_learner = graphed(lr=0.01, **train), learner(GUT, SHAPE, lr=0.01, **train)
    for step in range(8):
        data = batch(BATCHES[step % len(BATCHES)])
        result, expected = (run_step(learner_, data, step) for learner_ in (graphed_learner, plain_learner))
        torch.testing.assert_close(result.row(), expected.row(), rtol=1e-6, atol=1e-9)
    assert graphed_learner.graphs.num_captured == (3 if "accumulate" in train else 2)
    for (name, weight), expected_weight in zip(
        graphed_learner.model.named_parameters(), plain_learner.model.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, expected_weight, rtol=1e-5, atol=1e-8, msg=name)


def test_filler_limits_the_number_of_shapes() -> None:
    for rows, length in ((1, 1), (2, 2), (32, 100), (8, 4000)):
        filler = Filler.of(rows, length, 0)
        totals = set()
        for total in range(rows, rows * length + 1, max(1, rows * length // 500)):
            lengths = torch.full((rows,), total // rows) + (torch.arange(rows) < total % rows)
            mask = torch.arange(length) < lengths[:, None]
            filled_batch = filler.filled(Batch(mask.long(), mask, torch.zeros(rows, dtype=torch.long)))
            assert filled_batch.mask.shape == (rows + filler.rows, filler.width)
            assert filled_batch.mask.any(1).all()
            assert torch.equal(filled_batch.mask[:rows, :length], mask)
            totals.add(int(filled_batch.mask.sum()))
        assert len(totals) <= SHAPES_MAX + 1


def test_resumed_graphed_training_is_identical(tmp_path: Path) -> None:
    (folder := tmp_path / "saved").mkdir()
    training_job = job(tmp_path, graph=True, accumulate=2, ema=0.9)
    _, resumed_training = run_interrupted(RecordedTraining, training_job, folder)
    _, undisturbed_training = run_uninterrupted(RecordedTraining, training_job)
    assert all(map(torch.equal, resumed_training.model.parameters(), undisturbed_training.model.parameters()))


def test_graphs_without_a_gpu_raise_an_error(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"train\.graph: true"):
        Training(job(tmp_path, graph=True))


def test_model_that_cannot_be_captured_raises_an_error(tmp_path: Path) -> None:
    model = {"name": "sut", "width": 16}
    with pytest.raises(ValueError, match=r"train\.graph"):
        RecordedTraining(job(tmp_path, graph=True, model=model))


def test_autocast_casts_weights_in_each_replay() -> None:
    """A replay casts weights that earlier steps have changed."""
    learners = graphed(precision="bf16", lr=0.05), learner(GUT, SHAPE, precision="bf16", lr=0.05)
    for learner_ in learners:
        learner_.model.float()
    for step in range(4):
        result, expected = (run_step(learner_, batch(BATCHES[0]), step) for learner_ in learners)
        torch.testing.assert_close(result.row(), expected.row(), rtol=0.03, atol=0.03)
