"""Captured and replayed steps train like ordinary steps; on the CPU, captures are recordings."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.graphs.graph_contract import LENGTHS, RunningEngine, step_values
from tests.support.graphs.recorded import RecordingEngine
from tests.trainables.training.support.steps import SHAPES, learner, small_settings
from trainables.assembly import build_model
from trainables.layers import experts
from trainables.protocol import Job
from trainables.testing import cases
from trainables.testing.cases import batch
from trainables.testing.contract import run_interrupted, run_uninterrupted
from trainables.testing.resuming import TASK
from trainables.training import NONDETERMINISTIC_METRICS, Training
from trainables.training.config import train_config
from trainables.training.graphed import MOST_SHAPES, Engine, Filler, GraphedPasses
from trainables.training.step import Learner, one_step
from trainables.types import Batch

SHAPE = SHAPES["classify"]
GUT = small_settings("universal", SHAPE)
SUT: dict[str, Any] = {
    "name": "sut",
    "width": 16,
    "max_layers": 3,
    "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 8, "window": 2},
    "feedforward": {"experts": 6, "active": 3, "width": 8},
    "kernel": "math",
    "early_exit": "none",
}
"""Sizes are multiples of 16 bytes."""
BATCHES = ((5, 1, 9, 3, 7, 2, 2), (6, 6, 6, 6, 6, 6, 6), (20, 20, 20, 20, 11, 19, 20), (2, 8, 1, 1, 20, 4, 3))
"""Lengths of rows, which filler rows extend to 128 or 256 tokens."""


class RecordedTraining(Training):
    """A training with graphs recorded on the CPU."""

    def _engine(self) -> Engine:
        return RecordingEngine()


def graphed(raw: dict[str, Any] = GUT, filler: Filler | None = None, **train: Any) -> Learner:
    one = learner(raw, SHAPE, **train)
    rows = -(-len(BATCHES[0]) // one.config.accumulate)
    one.graphs = GraphedPasses(
        one, filler or Filler.of(rows, SHAPE.length_max, SHAPE.pad_id), RecordingEngine()
    )
    return one


def job(tmp_path: Path, *, graph: bool, model: dict[str, Any] | None = None, **train: Any) -> Job:
    settings = {"steps": 6, "batch_size": 6, "lr": 0.01, "report_every": 2, "graph": graph} | train
    given = model or {"name": "universal", "width": 16, "heads": 2, "max_layers": 4}
    return Job({"task": dict(TASK), "model": given, "train": settings}, 1, data_dir=tmp_path / "data")


@pytest.mark.parametrize(
    "train",
    [
        {},
        {"accumulate": 3},
        {"clip": 0.1, "ema": 0.5, "label_smoothing": 0.2, "weight_decay": 0.5},
        {"optimizer": "ranger"},
    ],
    ids=lambda train: "-".join(train) or "plain",
)
def test_graphed_steps_lead_to_the_same_weights(train: dict[str, Any]) -> None:
    graphed_learner, plain_learner = graphed(lr=0.01, **train), learner(GUT, SHAPE, lr=0.01, **train)
    for step in range(8):
        data = batch(BATCHES[step % len(BATCHES)])
        result, expected = (one_step(each, data, step) for each in (graphed_learner, plain_learner))
        torch.testing.assert_close(result.row(), expected.row(), rtol=1e-6, atol=1e-9)
    assert graphed_learner.graphs is not None
    assert graphed_learner.graphs.captured == (3 if "accumulate" in train else 2)
    for (name, weight), expected_weight in zip(
        graphed_learner.model.named_parameters(), plain_learner.model.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, expected_weight, rtol=1e-5, atol=1e-8, msg=name)


@pytest.mark.parametrize("filler", [Filler(20, 1, 16, 6), Filler(33, 5, 100, 6), Filler(25, 30, 64, 6)])
def test_filler_rows_do_not_change_the_step(filler: Filler) -> None:
    graphed_learner, plain_learner = graphed(filler=filler), learner(GUT, SHAPE)
    for step, lengths in enumerate(BATCHES):
        result, expected = (one_step(each, batch(lengths), step) for each in (graphed_learner, plain_learner))
        torch.testing.assert_close(result.row(), expected.row(), rtol=1e-6, atol=1e-9)
        for weight, plain in zip(
            graphed_learner.model.parameters(), plain_learner.model.parameters(), strict=True
        ):
            torch.testing.assert_close(weight.grad, plain.grad, rtol=1e-6, atol=1e-10)


def test_autocast_casts_weights_in_each_replay() -> None:
    """A replay casts weights that earlier steps have changed."""
    graphed_learner, plain_learner = (each.float() for each in (graphed().model, learner(GUT, SHAPE).model))
    graphed_learner, plain_learner = (
        graphed(precision="bf16", lr=0.05),
        learner(GUT, SHAPE, precision="bf16", lr=0.05),
    )
    for each in (graphed_learner, plain_learner):
        each.model.float()
    for step in range(4):
        result, expected = (
            one_step(each, batch(BATCHES[0]), step) for each in (graphed_learner, plain_learner)
        )
        torch.testing.assert_close(result.row(), expected.row(), rtol=0.03, atol=0.03)


def test_steps_with_grouped_products_of_experts_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product for each expert would make the host wait for the numbers of rows."""
    monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_: True)

    def filled(engine: Engine) -> Learner:
        config = train_config({"steps": 9, "batch_size": len(LENGTHS[0])})
        one = Learner(build_model(SUT, cases.SHAPE, cases.SEED).train(), config, seed=cases.SEED)
        filler = Filler.of(len(LENGTHS[0]), cases.SHAPE.length_max, cases.SHAPE.pad_id)
        one.graphs = GraphedPasses(one, filler, engine)
        return one

    one, other = filled(RecordingEngine()), filled(RunningEngine())
    for step, lengths in enumerate(LENGTHS):
        found, expected = (step_values(each, batch(lengths), step) for each in (one, other))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_filler_limits_the_number_of_shapes() -> None:
    for rows, length in ((1, 1), (2, 2), (32, 100), (64, 200), (128, 1000), (8, 4000)):
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
        assert len(totals) <= MOST_SHAPES + 1


def test_batch_beyond_the_longest_input_raises_an_error() -> None:
    with pytest.raises(ValueError, match=" 20 tokens"):
        one_step(graphed(), batch((21, 3)), 0)


def test_graphed_training_has_the_same_metrics(tmp_path: Path) -> None:
    measurements, graphed_training = run_uninterrupted(RecordedTraining, job(tmp_path, graph=True))
    expected, plain_training = run_uninterrupted(Training, job(tmp_path, graph=False))
    for each, plain in zip(measurements, expected, strict=True):
        metrics = {
            name: value for name, value in plain.metrics.items() if name not in NONDETERMINISTIC_METRICS
        }
        assert {name: each.metrics[name] for name in metrics} == pytest.approx(metrics, rel=1e-4)
    for weight, plain_weight in zip(
        graphed_training.model.parameters(), plain_training.model.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, plain_weight, rtol=1e-3, atol=1e-5)


def test_resumed_graphed_training_is_identical(tmp_path: Path) -> None:
    (folder := tmp_path / "saved").mkdir()
    training_job = job(tmp_path, graph=True, accumulate=2, ema=0.9)
    _, resumed = run_interrupted(RecordedTraining, training_job, folder)
    _, undisturbed_training = run_uninterrupted(RecordedTraining, training_job)
    assert all(map(torch.equal, resumed.model.parameters(), undisturbed_training.model.parameters()))


def test_graphs_without_a_gpu_raise_an_error(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"train\.graph: true"):
        Training(job(tmp_path, graph=True))


def test_model_that_cannot_be_captured_raises_an_error(tmp_path: Path) -> None:
    model = {"name": "sut", "width": 16}
    with pytest.raises(ValueError, match=r"train\.graph"):
        RecordedTraining(job(tmp_path, graph=True, model=model))
