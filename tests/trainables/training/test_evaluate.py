"""Metrics of a split equal values recomputed sample by sample."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.trainables.training.support.fakes import BagOfWords, some_batch
from trainables.layers.global_generator import GlobalStream
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner
from trainables.types import Batch, Output


def learner_of(model: BagOfWords) -> Learner:
    return Learner(model, train_config({"steps": 1}), seed=0)


def test_metrics_average_samples_not_batches() -> None:
    model = BagOfWords(dropout=0.9)
    batches = [some_batch(1, rows=7), some_batch(2, rows=2), some_batch(3, rows=40)]
    metrics = evaluate(learner_of(model), batches)

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
    assert metrics == pytest.approx(
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


def test_samples_without_any_layer_have_finite_metrics() -> None:
    class Empty(BagOfWords):
        def forward(self, batch: Batch) -> Output:
            output = super().forward(batch)
            nothing = torch.zeros_like(output.encoded.bound)
            return replace(output, encoded=replace(output.encoded, computed=nothing, bound=nothing))

    metrics = evaluate(learner_of(Empty()), [some_batch(1)], lambda lengths, shares: shares.mean())
    assert (metrics["flops"], metrics["saved"]) == (1.0, 0.0)


def test_random_numbers_in_evaluation_depend_on_the_seed() -> None:
    """A custom model may draw from the global generator during evaluation."""

    class Noisy(BagOfWords):
        def forward(self, batch: Batch) -> Output:
            output = super().forward(batch)
            return replace(output, loss=output.loss + torch.rand(len(output.loss)))

    model, batches = Noisy(), [some_batch(1), some_batch(2)]
    model.global_stream = GlobalStream(model)
    state_before = torch.get_rng_state()
    metrics = evaluate(learner_of(model), batches)
    assert torch.equal(torch.get_rng_state(), state_before)
    torch.rand(1)
    assert evaluate(learner_of(model), batches) == metrics
    assert evaluate(Learner(model, train_config({"steps": 1}), seed=1), batches) != metrics
