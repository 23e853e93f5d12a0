"""Training code is debugged without a sweep by a stand-in for its trial."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from haltsweep import Trial, current_trial
from trainables.custom.function import FunctionWorkload
from trainables.protocol import Job


def train(settings, trial):
    for step in (1, 2):
        drawn = {"valid/python": random.random(), "valid/torch": torch.rand(()).item()}
        drawn |= {"valid/numpy": np.random.random(), "valid/own": trial.generator("own").random()}  # noqa: NPY002
        trial.report(step, drawn | {f"{split}/seed": trial.seed_of("x") for split in trial.splits})


def test_a_stand_in_collects_what_a_sweep_would_measure(tmp_path: Path) -> None:
    trial = Trial(seed=3, splits=["test"], folder=tmp_path)
    train({}, trial)
    assert [each["step"] for each in trial.reports] == [1, 2]
    assert trial.reports[-1].keys() >= {"valid/torch", "test/seed"}
    assert (trial.phase, trial.folder) == ("confirm", tmp_path)
    again = Trial(seed=3, splits=["test"])
    train({}, again)
    assert again.reports == trial.reports
    other = Trial(seed=4)
    train({}, other)
    assert all(other.reports[0][name] != trial.reports[0][name] for name in ("valid/python", "valid/numpy"))


def test_a_stand_in_refuses_what_a_sweep_refuses() -> None:
    trial = Trial()
    trial.report(2, {"valid/loss": 1.0})
    with pytest.raises(ValueError, match="steps must increase, got 2 after 2"):
        trial.report(2, {"valid/loss": 1.0})


def test_the_current_trial_is_that_of_the_sweep_and_else_a_stand_in() -> None:
    assert isinstance(current_trial(), Trial)
    assert current_trial() is current_trial()
    workload = FunctionWorkload(
        lambda settings, trial: current_trial().report(1, {"valid/same": float(current_trial() is trial)}),
        Job({}, seed=0),
    )
    assert workload.advance().metrics == {"valid/same": 1.0}
    workload.close()
    assert isinstance(current_trial(), Trial)
