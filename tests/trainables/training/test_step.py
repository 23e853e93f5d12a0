"""A training step equals AdamW, clipping and the objective computed in float64."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs.examples import examples
from tests.trainables.training.support.fakes import BagOfWords, some_batch
from trainables.training.config import train_config
from trainables.training.schedule import learning_rate
from trainables.training.step import Learner, objective, run_step


def compute_by_hand(model: BagOfWords, batch: object, beta: float) -> tuple[float, dict[str, np.ndarray]]:
    """Compute objective and gradient of the bag of words from the equations, in NumPy."""
    table, out, halt = (p.detach().double().numpy() for p in (model.embedding, model.out, model.halt))
    tokens, mask, labels = (t.numpy() for t in (batch.tokens, batch.mask, batch.labels))
    rows = len(labels)
    grads = {"embedding": np.zeros_like(table), "out": np.zeros_like(out), "halt": np.zeros_like(halt)}
    total = 0.0
    for row in range(rows):
        words = tokens[row][mask[row]]
        pooled = table[words].mean(0)
        logits = pooled @ out
        p = np.exp(logits - logits.max())
        p /= p.sum()
        s = 1 / (1 + np.exp(-pooled @ halt))
        total += (-np.log(p[labels[row]]) + beta * s) / rows
        d_logits = (p - np.eye(len(p))[labels[row]]) / rows
        d_score = beta * s * (1 - s) / rows
        grads["out"] += np.outer(pooled, d_logits)
        grads["halt"] += d_score * pooled
        for word in words:
            grads["embedding"][word] += (out @ d_logits + d_score * halt) / len(words)
    return total, grads


@examples(15)
@given(
    clip=st.sampled_from([None, 0.05, 100.0]),
    beta=st.sampled_from([0.0, 0.1, 2.0]),
    decay=st.sampled_from([0.0, 0.1]),
    cycle=st.booleans(),
    seed=st.integers(0, 100),
)
def test_steps_equal_adamw(clip: float | None, beta: float, decay: float, cycle: bool, seed: int) -> None:
    raw = {"steps": 4, "lr": 0.02, "clip": clip, "ponder_weight": beta, "weight_decay": decay}
    config = train_config(raw | {"schedule": "linear", "warmup_steps": 2, "onecycle_beta1": cycle})
    model = BagOfWords().double()
    learner = Learner(model, config, seed=seed)
    theta = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    first = {name: np.zeros_like(value) for name, value in theta.items()}
    second = {name: np.zeros_like(value) for name, value in theta.items()}
    for step in range(config.steps):
        batch = some_batch(seed + step)
        total, grads = compute_by_hand(model, batch, beta)
        norm = math.sqrt(sum((grad**2).sum() for grad in grads.values()))
        result = run_step(learner, batch, step)
        assert float(result.gradient_norm) == pytest.approx(norm, rel=1e-9)
        assert float(result.loss + beta * result.ponder) == pytest.approx(total, rel=1e-9)
        scale = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        rate = learning_rate(config, step)
        # The cycle has 0.95 at step 0, 0.85 at the end of the warm-up (step 1), and 0.95 at the last step.
        beta1, beta2 = [0.95, 0.85, 0.90, 0.95][step] if cycle else 0.9, 0.98
        for name, grad in grads.items():
            first[name] = beta1 * first[name] + (1 - beta1) * scale * grad
            second[name] = beta2 * second[name] + (1 - beta2) * (scale * grad) ** 2
            m = first[name] / (1 - beta1 ** (step + 1))
            v = second[name] / (1 - beta2 ** (step + 1))
            theta[name] = theta[name] * (1 - rate * decay) - rate * m / (np.sqrt(v) + config.eps)
            actual = dict(model.named_parameters())[name].detach().numpy()
            np.testing.assert_allclose(actual, theta[name], rtol=1e-9, atol=1e-12)


def test_step_result_counts_the_batch() -> None:
    model, batch = BagOfWords(), some_batch()
    learner = Learner(model, train_config({"steps": 1}), seed=0)
    with torch.no_grad():
        output = model(batch)
    result = run_step(learner, batch, 0)
    values = [output.loss.mean(), output.encoded.ponder.mean(), result.gradient_norm, output.hits.sum(), 5]
    expected = torch.tensor([*map(float, values), float(batch.mask.sum())], dtype=torch.float64)
    torch.testing.assert_close(result.row(), expected)


def test_step_depends_only_on_its_number_and_seed() -> None:
    def weights(seed: int, step: int) -> list[torch.Tensor]:
        model = BagOfWords(dropout=0.5)
        run_step(Learner(model, train_config({"steps": 9}), seed=seed), some_batch(), step)
        return [p.detach() for p in model.parameters()]

    def are_equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
        return all(map(torch.equal, a, b))

    assert are_equal(weights(3, 2), weights(3, 2))
    assert not are_equal(weights(3, 2), weights(3, 3))
    assert not are_equal(weights(3, 2), weights(4, 2))


def test_objective_includes_an_auxiliary_cost() -> None:
    with torch.no_grad():
        output = BagOfWords()(some_batch())
    loss_without_cost = objective(output, train_config({"steps": 1, "auxiliary_weight": 0.5}))
    cost = torch.arange(5.0)
    costly = dataclasses.replace(output, encoded=dataclasses.replace(output.encoded, auxiliary=cost))
    loss_with_cost = objective(costly, train_config({"steps": 1, "auxiliary_weight": 0.5}))
    assert float(loss_with_cost - loss_without_cost) == pytest.approx(0.5 * 2.0, rel=1e-5)


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_gpu_precisions_require_cuda(precision: str) -> None:
    with pytest.raises(ValueError, match=rf"'{precision}' .*'cpu'"):
        Learner(BagOfWords(), train_config({"steps": 1, "precision": precision}), seed=0)


def test_loss_scaling_changes_only_overflowing_steps() -> None:
    """The CPU runs the scaler that fp16 uses on CUDA."""

    def steep_model() -> BagOfWords:
        model = BagOfWords()
        with torch.no_grad():
            model.out *= 1000  # gradients above 1, so that the scale overflows
        return model

    def learner(scale: float | None) -> Learner:
        learner_ = Learner(steep_model(), train_config({"steps": 2, "lr": 0.1, "clip": 0.01}), seed=0)
        if scale is not None:
            learner_.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        return learner_

    plain_learner, scaled_learner, overflowing_learner = learner(None), learner(2.0**12), learner(3e38)
    norms = [
        run_step(learner_, some_batch(), 0).gradient_norm
        for learner_ in (plain_learner, scaled_learner, overflowing_learner)
    ]
    torch.testing.assert_close(norms[0], norms[1])
    assert not math.isfinite(norms[2])
    for actual, expected in zip(
        scaled_learner.model.parameters(), plain_learner.model.parameters(), strict=True
    ):
        torch.testing.assert_close(actual, expected)
    for actual, expected in zip(
        overflowing_learner.model.parameters(), steep_model().parameters(), strict=True
    ):
        assert torch.equal(actual, expected)
    assert overflowing_learner.scaler.get_scale() == pytest.approx(1.5e38)
