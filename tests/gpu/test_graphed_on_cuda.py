"""CUDA graphs of training steps equal ordinary steps; on the CPU they are recordings."""

from typing import Any

import pytest
import torch

from tests.gpu.devices import needs_cuda, on_devices
from trainables.assembly import build_model
from trainables.testing.arms import base
from trainables.testing.cases import SEED, SHAPE, batch
from trainables.testing.graphs import LENGTHS, RunningEngine, step_values
from trainables.testing.recorded import RecordingEngine
from trainables.training.config import train_config
from trainables.training.graphed import CudaEngine, Engine, Filler, GraphedPasses
from trainables.training.step import Learner, run_step

CASES: dict[str, dict[str, Any]] = {
    "gut": {"name": "universal", "attention": "math"},
    "gut, fused attention that drops": {"name": "universal", "attention": "sdpa"},
    "looped": {"name": "looped", "loops": 4, "attention": "math"},
    "ndr": {"name": "ndr"},
}


def learner(raw: dict[str, Any], device: str, engine: Engine | None = None, **train: Any) -> Learner:
    settings = base(raw["name"], {name: value for name, value in raw.items() if name != "name"})
    config = train_config({"steps": 99, "batch_size": 5, "lr": 0.01} | train)
    graphed_learner = Learner(build_model(settings, SHAPE, SEED, device).train(), config, seed=SEED)
    if engine is not None:
        rows = -(-len(LENGTHS[0]) // config.accumulate)
        graphed_learner.graphs = GraphedPasses(
            graphed_learner, Filler.of(rows, SHAPE.length_max, SHAPE.pad_id), engine
        )
    return graphed_learner


def engine_on(device: str) -> Engine:
    return CudaEngine(torch.device(device)) if device == "cuda" else RecordingEngine()


@on_devices(CASES)
def test_replay_equals_the_pass(case: dict[str, Any], device: str) -> None:
    """Shapes alternate, and dropout is that of the step."""
    graphed_learner, plain_learner = (
        learner(case, device, engine) for engine in (engine_on(device), RunningEngine())
    )
    for step in range(8):
        inputs = batch(LENGTHS[step % len(LENGTHS)])
        actual, expected = (step_values(each, inputs, step) for each in (graphed_learner, plain_learner))
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(actual[name], value, rtol=1e-4, atol=1e-6, msg=name)


PRECISIONS = {each: {"precision": each} for each in ("fp32", "bf16", "fp16")}


@on_devices(PRECISIONS, rehearse=["fp32", "bf16"])
def test_graphed_steps_learn_like_ordinary_steps(case: dict[str, Any], device: str) -> None:
    raw = CASES["gut"]
    for train in (case, case | {"accumulate": 2}):
        graphed_learner, plain_learner = (
            learner(raw, device, engine_on(device), **train),
            learner(raw, device, **train),
        )
        for step in range(8):
            inputs = batch(LENGTHS[step % len(LENGTHS)])
            actual, expected = (
                run_step(graphed_learner, inputs, step),
                run_step(plain_learner, inputs.to(plain_learner.device), step),
            )
            close = (
                {"rtol": 1e-2, "atol": 1e-3} if case["precision"] == "fp32" else {"rtol": 0.2, "atol": 0.2}
            )
            torch.testing.assert_close(actual.row(), expected.row(), **close)


@pytest.mark.gpu
@needs_cuda
def test_replay_does_not_advance_the_generator() -> None:
    graphed_learner = learner(CASES["gut, fused attention that drops"], "cuda", engine_on("cuda"))
    state_before = torch.cuda.get_rng_state()
    for step in range(3):
        run_step(graphed_learner, batch(LENGTHS[0]), step)
    assert torch.equal(torch.cuda.get_rng_state(), state_before)
