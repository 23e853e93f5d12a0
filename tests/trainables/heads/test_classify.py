"""The loss of the classifier equals formulas."""

import math

import pytest
import torch
from torch import Tensor

from trainables.assembly import build_model
from trainables.heads._parts import Readout, predict
from trainables.layers.dropout import set_dropout_context
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
    all_alike = [
        sum(math.log(sum(math.exp(x) for x in row)) - x for x in row) / len(row) for row in logits.tolist()
    ]
    assert predicted.uniform.tolist() == pytest.approx(all_alike)


def test_two_classes_share_one_logit() -> None:
    predicted = predict(torch.tensor([[2.0], [-1.0], [0.5]]), torch.tensor([1, 1, 0]))
    probability = [1 / (1 + math.exp(-logit)) for logit in (2.0, -1.0, 0.5)]
    expected = [-math.log(probability[0]), -math.log(probability[1]), -math.log(1 - probability[2])]
    assert predicted.loss.tolist() == pytest.approx(expected)
    assert predicted.most_probable.tolist() == [1, 0, 1]
    all_alike = [-(math.log(p) + math.log(1 - p)) / 2 for p in probability]
    assert predicted.uniform.tolist() == pytest.approx(all_alike)


@pytest.mark.parametrize(("num_classes", "logits"), [(2, 1), (3, 3), (10, 10)])
def test_readout_has_a_logit_a_class_except_for_two(num_classes: int, logits: int) -> None:
    model = build_model(MODEL, shape(num_classes), seed=0)
    assert model.readout.outer.out_features == logits
    output = model.eval()(batch([0, 1]))
    assert output.loss.shape == output.hits.shape == output.counts.shape == (2,)


def test_hits_count_correct_guesses() -> None:
    model = build_model(MODEL, shape(3), seed=0).eval()
    batch_ = batch([0, 0, 0, 0])
    guesses = model.readout(model(batch_).encoded.pooled).argmax(1)
    right = Batch(batch_.tokens, batch_.mask, guesses)
    assert model(right).hits.tolist() == [1.0] * 4
    assert model(Batch(batch_.tokens, batch_.mask, (guesses + 1) % 3)).hits.tolist() == [0.0] * 4


def test_token_embeddings_start_small() -> None:
    wide = TaskShape(head="classify", vocabulary_size=2000, num_classes=3, pad_id=0, length_max=9)
    table: Tensor = build_model(MODEL, wide, seed=0).embedding.weight
    assert table.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(table.mean().item()) < 0.001


def test_dropout_follows_the_embedding() -> None:
    model = build_model(MODEL | {"dropout": 0.9, "attention_dropout": 0.0}, shape(3), seed=0)
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    set_dropout_context(model, seed=0, step=0)
    model(batch([0, 1, 2]))
    assert 0.7 < (seen[0] == 0).double().mean() < 1


def test_readout_dropout_applies_to_inputs_and_hidden_units() -> None:
    """With unit weights the output is 0 where either dropout dropped the element, and 4 elsewhere."""
    readout = Readout(64, 64, logits=64, dropout=0.5)
    for linear in (readout.inner, readout.outer):
        torch.nn.init.eye_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    set_dropout_context(readout, seed=1, step=2)
    trained = readout(torch.ones(32, 64))
    assert set(trained.unique().tolist()) == {0.0, 4.0}
    # With 2048 draws at a probability of one quarter, six standard deviations are 0.057.
    assert (trained > 0).float().mean().item() == pytest.approx(0.25, abs=0.06)
    assert len({tuple(row) for row in trained.tolist()}) == 32
    assert readout.eval()(torch.ones(2, 64)).unique().tolist() == [1.0]


@pytest.mark.parametrize(("model", "rate"), [("transformer", 0.0), ("crvnn", 0.1), ("ndr", 0.1)])
def test_readouts_have_their_published_dropout(model: str, rate: float) -> None:
    readout = build_model({"name": model}, shape(3), seed=0, device="meta").readout
    assert (readout.inner_dropout.rate, readout.outer_dropout.rate) == (rate, rate)
