"""Test that an interrupted training of a model continues bit for bit."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainables.protocol import Job
from trainables.testing.arms import BASE, Raw
from trainables.testing.cases import ModelCases
from trainables.testing.contract import check, run_interrupted, run_uninterrupted
from trainables.training import NONDETERMINISTIC_METRICS, Training

if TYPE_CHECKING:
    import pytest

TASK: Mapping[str, Any] = {
    "name": "listops",
    "trees": 400,
    "near_iid_examples": 40,
    "valid_examples": 40,
    "test_examples": 5,
    "depth_max": 4,
    "arguments_max": 4,
    "train_length_max": 30,
}
TRAIN: Mapping[str, Any] = {"steps": 4, "batch_size": 6, "lr": 0.01, "report_every": 2}
DATA = "contract-data"


class ResumeContract(ModelCases):
    """Trains the small version and further arms of the user for a few steps on a task, on the CPU."""

    task: ClassVar[Mapping[str, Any]] = TASK
    """Settings of the task; by default a small ListOps."""
    train: ClassVar[Mapping[str, Any]] = TRAIN
    """Settings of the training."""

    def every_trained(self) -> dict[str, Raw]:
        """Return few arms, because each is trained three times."""
        return {label: raw for label, raw in self.every_arm().items() if label in (BASE, *self.arms)}

    def test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one(
        self, trained: Raw, tmp_path: Path, tmp_path_factory: "pytest.TempPathFactory"
    ) -> None:
        """Check measurements and weights of a trial that is resumed in a new workload each time."""
        settings = {"task": dict(self.task), "model": trained, "train": dict(self.train)}
        job = Job(settings, 1, data_dir=tmp_path_factory.getbasetemp() / DATA)
        measurements, resumed_training = run_interrupted(Training, job, tmp_path)
        expected, uninterrupted_training = run_uninterrupted(Training, job)
        for actual_measurement, expected_measurement in zip(measurements, expected, strict=True):
            deterministic_names = expected_measurement.metrics.keys() - NONDETERMINISTIC_METRICS
            different_metrics = {
                name
                for name in deterministic_names
                if actual_measurement.metrics[name] != expected_measurement.metrics[name]
            }
            message = f"step {expected_measurement.step} must be measured as if undisturbed, got others: "
            check(not different_metrics, message + ", ".join(sorted(different_metrics)))
        resumed_weights, uninterrupted_weights = (
            dict(training.model.named_parameters()) for training in (resumed_training, uninterrupted_training)
        )
        different_weights = [
            name
            for name, parameter in resumed_weights.items()
            if not torch.equal(parameter, uninterrupted_weights[name])
        ]
        check(
            not different_weights,
            f"weights must be as if undisturbed, got others: {', '.join(different_weights)}",
        )
