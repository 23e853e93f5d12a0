"""The loss of the classifier equals formulas."""

import math

import pytest
import torch

from trainables.assembly import build_model
from trainables.heads._parts import predict
from trainables.types import Batch, TaskShape

MODEL = {"name": "transformer", "width": 8, "heads": 2, "layers": 1}


def shape(num_classes: int) -> TaskShape:
    return TaskShape(head="classify", vocabulary_size=5, num_classes=num_classes, pad_id=4, length_max=9)


def batch(labels: list[int]) -> Batch:
    tokens = torch.arange(3 * len(labels)).reshape(len(labels), 3) % 4
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor(labels))


def test_many_classes_have_cross_entropy() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    predicted = predict(logits, torch.tensor([0, 2]))
    expected = [
        -(row[label] - math.log(sum(math.exp(x) for x in row)))
        for row, label in zip(logits.tolist(), [0, 2], strict=True)
    ]
    assert predicted.loss.tolist() == pytest.approx(expected)
    assert predicted.most_probable.tolist() == [1, 2]
    uniform_losses = [
        sum(math.log(sum(math.exp(x) for x in row)) - x for x in row) / len(row) for row in logits.tolist()
    ]
    assert predicted.uniform.tolist() == pytest.approx(uniform_losses)


def test_two_classes_share_one_logit() -> None:
    predicted = predict(torch.tensor([[2.0], [-1.0], [0.5]]), torch.tensor([1, 1, 0]))
    probability = [1 / (1 + math.exp(-logit)) for logit in (2.0, -1.0, 0.5)]
    expected = [-math.log(probability[0]), -math.log(probability[1]), -math.log(1 - probability[2])]
    assert predicted.loss.tolist() == pytest.approx(expected)
    assert predicted.most_probable.tolist() == [1, 0, 1]
    uniform_losses = [-(math.log(p) + math.log(1 - p)) / 2 for p in probability]
    assert predicted.uniform.tolist() == pytest.approx(uniform_losses)


def test_hits_count_correct_guesses() -> None:
    model = build_model(MODEL, shape(3), seed=0).eval()
    batch_ = batch([0, 0, 0, 0])
    guesses = model.readout(model(batch_).encoded.pooled).argmax(1)
    correct_batch = Batch(batch_.tokens, batch_.mask, guesses)
    assert model(correct_batch).hits.tolist() == [1.0] * 4
    assert model(Batch(batch_.tokens, batch_.mask, (guesses + 1) % 3)).hits.tolist() == [0.0] * 4


@pytest.mark.parametrize(("model", "rate"), [("transformer", 0.0), ("crvnn", 0.1), ("ndr", 0.1)])
def test_readouts_have_their_published_dropout(model: str, rate: float) -> None:
    readout = build_model({"name": model}, shape(3), seed=0, device="meta").readout
    assert (readout.inner_dropout.rate, readout.outer_dropout.rate) == (rate, rate)
