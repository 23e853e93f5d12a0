"""A batch run in parts trains like the whole batch, with every built-in model and head."""

import pytest
import torch
from torch import nn

from tests.trainables.training.support.fakes import BagOfWords
from tests.trainables.training.support.steps import (
    DROPOUT_RATES,
    ROWS,
    SHAPES,
    assert_same_step,
    cases,
    learner,
    small_settings,
    take_step,
)
from trainables.assembly import batch_cost, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import with_fields
from trainables.training.config import train_config
from trainables.training.step import Learner, objective


@pytest.mark.parametrize(("name", "head"), cases())
def test_accumulated_parts_equal_the_whole_batch(name: str, head: str) -> None:
    shape = SHAPES[head]
    raw = small_settings(name, shape, balance="none")
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    parts = take_step(learner(raw, shape, accumulate=4), batch)
    assert_same_step(parts, take_step(learner(raw, shape), batch))


def test_batch_cost_is_computed_in_each_part() -> None:
    """The loss that balances experts weights each part of a batch by its share of the samples."""
    shape = SHAPES["classify"]
    raw = small_settings("sut", shape)
    assert batch_cost(model_config(raw))
    assert batch_cost(model_config(raw | {"balance": "none"})) is None
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    raw = with_fields(raw, **dict.fromkeys(DROPOUT_RATES, 0.0), gating_dropout=0.0)
    part_learner = learner(raw, shape, accumulate=2)
    for part in (batch.rows(0, 4), batch.rows(4, 7)):
        set_dropout_context(part_learner.model, 0, 0)
        (objective(part_learner.model(part), part_learner.config) * len(part.labels) / ROWS).backward()
    expected = {name: p.grad for name, p in part_learner.model.named_parameters() if p.grad is not None}
    _, gradient = take_step(learner(raw, shape, accumulate=2), batch)
    for name, part_grad in gradient.items():
        torch.testing.assert_close(part_grad, expected[name], rtol=1e-7, atol=1e-10)
    _, whole_gradient = take_step(learner(raw, shape), batch)
    router = next(name for name in whole_gradient if "router" in name)
    assert not torch.allclose(whole_gradient[router], gradient[router], rtol=1e-3)


class BatchNormBag(BagOfWords):
    """A bag of words with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)


def test_batch_norm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BatchNorm1d .*norm"):
        Learner(BatchNormBag(), train_config({"steps": 1, "accumulate": 2}), seed=0)
    Learner(BatchNormBag(), train_config({"steps": 1}), seed=0)
