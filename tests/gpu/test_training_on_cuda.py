"""An interrupted training on CUDA resumes like an undisturbed one."""

from pathlib import Path

import pytest

from tests.gpu.devices import needs_cuda
from tests.trainables.training.support.complete_runs import repeatable_metrics, run
from trainables.protocol import Job
from trainables.testing.resuming import TASK
from trainables.training import Training

GUT = {"name": "universal", "width": 16, "heads": 2, "max_layers": 4, "attention": "math"}
pytestmark = [pytest.mark.gpu, needs_cuda]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_resumed_training_equals_an_undisturbed_one(precision: str, tmp_path: Path) -> None:
    """CUDA may sum in another order, so results are compared with tolerances."""
    train = {"steps": 6, "batch_size": 8, "lr": 0.01, "report_every": 2, "precision": precision}
    job = Job({"task": TASK, "model": GUT, "train": train}, seed=1, data_dir=tmp_path / "data")
    expected = run(Training(job))
    interrupted, folder = Training(job), tmp_path / "checkpoint"
    interrupted.advance()
    folder.mkdir()
    interrupted.save(folder)
    resumed_training = Training(job)
    resumed_training.restore(folder)
    for actual, expected_measurement in zip(run(resumed_training), expected[1:], strict=True):
        assert actual.step == expected_measurement.step
        assert repeatable_metrics(actual) == pytest.approx(
            repeatable_metrics(expected_measurement), rel=0.05, abs=0.05
        )
