"""An interrupted training on CUDA resumes like an undisturbed one."""

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.devices import needs_cuda
from trainables.protocol import Job, Measurement
from trainables.training import NONDETERMINISTIC_METRICS, Training

TASK = {
    "name": "listops",
    "trees": 400,
    "near_iid_examples": 40,
    "valid_examples": 40,
    "depth_max": 4,
    "arguments_max": 4,
    "train_length_max": 30,
}
GUT = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4, "attention": "math"}
pytestmark = [pytest.mark.gpu, needs_cuda]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_resumed_training_equals_an_undisturbed_one(precision: str, tmp_path: Path) -> None:
    """CUDA may sum in another order, so results are compared with tolerances."""
    train = {"steps": 6, "batch_size": 8, "lr": 0.01, "report_every": 2, "precision": precision}
    job = Job({"task": TASK, "model": GUT, "train": train}, seed=1, data_dir=tmp_path / "data")
    expected = measurements(Training(job))
    interrupted, folder = Training(job), tmp_path / "checkpoint"
    interrupted.advance()
    folder.mkdir()
    interrupted.save(folder)
    resumed_training = Training(job)
    resumed_training.restore(folder)
    for actual, expected_measurement in zip(measurements(resumed_training), expected[1:], strict=True):
        assert actual.step == expected_measurement.step
        assert comparable(actual) == pytest.approx(comparable(expected_measurement), rel=0.05, abs=0.05)


def measurements(training: Training) -> list[Measurement]:
    reports = []
    while not training.finished:
        reports.append(training.advance())
    return reports


def comparable(measurement: Measurement) -> dict[str, Any]:
    return {
        name: value for name, value in measurement.metrics.items() if name not in NONDETERMINISTIC_METRICS
    }
