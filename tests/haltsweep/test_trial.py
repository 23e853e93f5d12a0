"""A stand-in for the trial lets users debug training code without a sweep."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from haltsweep import Trial, current_trial
from trainables.custom.function import FunctionWorkload
from trainables.protocol import Job


def train(settings, trial):
    for step in (1, 2):
        random_numbers = {"valid/python": random.random(), "valid/torch": torch.rand(()).item()}
        random_numbers |= {"valid/numpy": np.random.random(), "valid/own": trial.generator("own").random()}  # noqa: NPY002
        trial.report(step, random_numbers | {f"{split}/seed": trial.seed_of("x") for split in trial.splits})


def test_stand_in_collects_reports(tmp_path: Path) -> None:
    trial = Trial(seed=3, splits=["test"], folder=tmp_path)
    train({}, trial)
    assert [report["step"] for report in trial.reports] == [1, 2]
    assert trial.reports[-1].keys() >= {"valid/torch", "test/seed"}
    assert (trial.phase, trial.folder) == ("confirm", tmp_path)
    same_seed = Trial(seed=3, splits=["test"])
    train({}, same_seed)
    assert same_seed.reports == trial.reports
    other_seed = Trial(seed=4)
    train({}, other_seed)
    assert all(
        other_seed.reports[0][name] != trial.reports[0][name] for name in ("valid/python", "valid/numpy")
    )


def test_stand_in_refuses_invalid_reports() -> None:
    trial = Trial()
    trial.report(2, {"valid/loss": 1.0})
    with pytest.raises(ValueError, match=r"2 .*2"):
        trial.report(2, {"valid/loss": 1.0})


def test_current_trial_outside_of_a_sweep_seeds_nothing() -> None:
    code = """
import random, numpy, torch, haltsweep
states = lambda: (torch.initial_seed(), random.getstate(), numpy.random.get_state()[1].tolist())
torch.manual_seed(1)
earlier_states = states()
haltsweep.current_trial()
assert states() == earlier_states
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_current_trial_is_that_of_the_sweep_or_a_stand_in() -> None:
    assert isinstance(current_trial(), Trial)
    assert current_trial() is current_trial()
    workload = FunctionWorkload(
        lambda settings, trial: current_trial().report(1, {"valid/same": float(current_trial() is trial)}),
        Job({}, seed=0),
    )
    assert workload.advance().metrics == {"valid/same": 1.0}
    workload.close()
    assert isinstance(current_trial(), Trial)
