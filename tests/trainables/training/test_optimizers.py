"""Ranger equals RAdam with Lookahead, computed in float64, also after a checkpoint."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.trainables.training.support.fakes import BagOfWords, some_batch
from trainables.training.config import TrainConfig, train_config
from trainables.training.optimizers import AdamW, Ranger, make_optimizer
from trainables.training.state import TrainingProgress, TrainingState
from trainables.training.step import Learner, run_step

RATE, DECAY, BETA1, BETA2, EPS = 0.05, 0.1, 0.9, 0.98, 1e-8


def config(**changes: object) -> TrainConfig:
    raw = {"steps": 20, "lr": RATE, "weight_decay": DECAY, "betas": [BETA1, BETA2], "optimizer": "ranger"}
    return train_config(raw | changes)


def test_ranger_equals_radam_with_lookahead_every_fifth_step() -> None:
    model = nn.Linear(3, 2).double()
    optimizer = make_optimizer(model, config())
    weights = model.weight.detach().numpy().copy()
    slow, first, second = weights.copy(), np.zeros_like(weights), np.zeros_like(weights)
    rho_infinity = 2 / (1 - BETA2) - 1
    rectified = set()
    for t in range(1, 13):
        gradient = np.random.default_rng(t).normal(size=weights.shape)
        model.weight.grad = torch.tensor(gradient)
        optimizer.step()
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        rho = rho_infinity - 2 * t * BETA2**t / (1 - BETA2**t)
        change = first / (1 - BETA1**t)
        if rho > 5:
            share = (rho - 4) * (rho - 2) * rho_infinity / ((rho_infinity - 4) * (rho_infinity - 2) * rho)
            change = math.sqrt(share) * change / (np.sqrt(second / (1 - BETA2**t)) + EPS)
        rectified.add(rho > 5)
        weights = weights * (1 - RATE * DECAY) - RATE * change
        if t % 5 == 0:
            slow = weights = slow + 0.8 * (weights - slow)
        np.testing.assert_allclose(model.weight.detach().numpy(), weights, rtol=1e-7)
    assert rectified == {False, True}


def test_resumed_optimizer_is_identical(tmp_path: Path) -> None:
    saved_at = 7  # between two lookaheads

    def learner() -> Learner:
        return Learner(BagOfWords(dropout=0.2), config(), seed=3)

    def run(learner_: Learner, steps: range) -> None:
        for step in steps:
            run_step(learner_, some_batch(step), step)

    original_learner, restored_learner = learner(), learner()
    run(original_learner, range(saved_at))
    TrainingState(original_learner, {}, TrainingProgress(step=saved_at)).save(tmp_path)
    TrainingState(restored_learner, {}, TrainingProgress()).restore(tmp_path)
    assert isinstance(restored_learner.optimizer, Ranger)
    for learner_ in (original_learner, restored_learner):
        run(learner_, range(saved_at, saved_at + 6))
    for parameter, restored_parameter in zip(
        original_learner.model.parameters(), restored_learner.model.parameters(), strict=True
    ):
        assert torch.equal(parameter, restored_parameter)


def test_adamw_steps_equal_pytorch_exactly() -> None:
    tested, reference = nn.Linear(3, 2), nn.Linear(3, 2)
    reference.load_state_dict(tested.state_dict())
    options = {"lr": RATE, "betas": (BETA1, BETA2), "eps": EPS, "weight_decay": DECAY, "fused": True}
    optimizers = AdamW(tested.parameters(), **options), torch.optim.AdamW(reference.parameters(), **options)
    for step in range(7):
        batch = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
        for model, optimizer in zip((tested, reference), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().sum().backward()
            optimizer.step()
    assert torch.equal(tested.weight, reference.weight)
    assert torch.equal(tested.bias, reference.bias)
