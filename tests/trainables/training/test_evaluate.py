"""Quantities of a split, recomputed from the samples one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.trainables.training.support.fakes import Bag, some_batch
from trainables.layers.plain import GlobalStream
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner
from trainables.types import Batch, Output


def learner_of(model: Bag) -> Learner:
    return Learner(model, train_config({"steps": 1}), seed=0)


def test_quantities_are_sums_over_samples_not_over_batches() -> None:
    model = Bag(dropout=0.9)
    batches = [some_batch(1, rows=7), some_batch(2, rows=2), some_batch(3, rows=40)]
    found = evaluate(learner_of(model), batches)

    loss, hits, ponder, lengths, labels = [], [], [], [], []
    for batch in batches:
        for tokens, mask, label in zip(batch.tokens, batch.mask, batch.labels, strict=True):
            pooled = model.embedding[tokens[mask]].mean(0)
            logits = (pooled @ model.out).detach()
            loss.append(float(F.cross_entropy(logits, label)))
            hits.append(int(logits.argmax()) == int(label))
            ponder.append(float(torch.sigmoid(pooled @ model.halt).detach()))
            lengths.append(int(mask.sum()))
            labels.append(int(label))
    assert found == pytest.approx(
        {
            "loss": np.mean(loss),
            "accuracy": np.mean(hits),
            "ponder": np.mean(ponder),
            "depth": np.mean(lengths),
            "depth_p10": np.percentile(lengths, 10),
            "depth_p50": np.percentile(lengths, 50),
            "depth_p90": np.percentile(lengths, 90),
            "depth_bound": 10,
            "saved": 1 - sum(length + 1 for length in lengths) / (10 * len(lengths)),
            "floor": max(map(labels.count, set(labels))) / len(labels),
        },
        rel=1e-6,
    )


def test_measuring_leaves_the_model_in_training_mode_and_without_gradients() -> None:
    model = Bag()
    evaluate(learner_of(model), [some_batch()])
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_a_model_draws_while_it_is_evaluated_is_of_its_seed() -> None:
    """A model from outside may draw from the global generator then too."""

    class Noisy(Bag):
        def forward(self, batch: Batch) -> Output:
            output = super().forward(batch)
            return replace(output, loss=output.loss + torch.rand(len(output.loss)))

    model, batches = Noisy(), [some_batch(1), some_batch(2)]
    model.global_stream = GlobalStream(model)
    before = torch.get_rng_state()
    found = evaluate(learner_of(model), batches)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert evaluate(learner_of(model), batches) == found
    assert evaluate(Learner(model, train_config({"steps": 1}), seed=1), batches) != found


def test_how_a_split_is_cut_does_not_matter() -> None:
    model, whole = Bag(), some_batch(4, rows=9)
    parts = [
        Batch(whole.tokens[rows], whole.mask[rows], whole.labels[rows]) for rows in (slice(0, 4), slice(4, 9))
    ]
    together = evaluate(learner_of(model), [whole])
    assert evaluate(learner_of(model), parts) == pytest.approx(together, rel=1e-6)
