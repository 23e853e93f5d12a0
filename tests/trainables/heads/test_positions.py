"""Predictions at positions equal a loop over the positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner
from trainables.types import NOT_ASKED, Batch, TaskShape

SHAPE = TaskShape("positions", 8, num_classes=4, pad_id=7, length_max=30)
RAW = {"name": "transformer", "width": 8, "heads": 2, "layers": 1, "dropout": 0.0, "attention_dropout": 0.0}


@given(st.integers(0, 2**30), st.integers(1, 5), st.integers(1, 8), st.sampled_from([2, 4]))
def test_only_labelled_positions_count(seed: int, rows: int, length: int, classes: int) -> None:
    shape = TaskShape("positions", 8, num_classes=classes, pad_id=7, length_max=30)
    labelled_batch = synthetic_batch(shape, rows, length, seed)
    stream = torch.Generator().manual_seed(seed)
    drop = torch.rand(labelled_batch.labels.shape, generator=stream) < 0.5
    drop[:, 0] = False
    batch = Batch(
        labelled_batch.tokens, labelled_batch.mask, labelled_batch.labels.masked_fill(drop, NOT_ASKED)
    )
    model = build_model(RAW, shape, seed=1).double().eval()
    output = model(batch)
    states = model.encoder(F.embedding(batch.tokens, model.embedding()), batch.mask).states[:, 1:-1]
    for row in range(rows):
        losses, hits = [], []
        for column in range(length):
            label = int(batch.labels[row, column])
            if label == NOT_ASKED:
                continue
            logits = model.readout(states[row, column][None])[0]
            if classes == 2:
                logits = torch.stack((torch.zeros_like(logits[0]), logits[0]))
            losses.append(logits.logsumexp(0) - logits[label])
            hits.append(float(logits.argmax() == label))
        torch.testing.assert_close(output.loss[row], torch.stack(losses).mean())
        assert output.hits[row] == sum(hits)
        assert output.counts[row] == len(hits)
        assert output.shares["accuracy_last"][row] == hits[-1]
        assert output.shares["accuracy_whole"][row] == all(hits)


def test_evaluation_counts_predictions_and_averages_shares_over_samples() -> None:
    learner = Learner(build_model(RAW, SHAPE, seed=1), train_config({"steps": 1}), seed=0)
    batches = [synthetic_batch(SHAPE, 5, length, seed=length) for length in (3, 9, 4)]
    metrics = evaluate(learner, batches)
    learner.model.eval()
    outputs = [learner.model(batch) for batch in batches]
    hits = sum(float(output.hits.sum()) for output in outputs)
    labels = torch.cat([batch.labels[batch.mask] for batch in batches])
    assert metrics["accuracy"] == pytest.approx(hits / len(labels))
    assert metrics["floor"] == pytest.approx(float(labels.bincount().max()) / len(labels))
    for name in ("accuracy_last", "accuracy_whole"):
        expected = torch.cat([output.shares[name] for output in outputs]).mean()
        assert metrics[name] == pytest.approx(float(expected))
    assert metrics["accuracy_last"] != metrics["accuracy_whole"]
