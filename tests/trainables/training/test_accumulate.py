"""A batch that is run in parts teaches what it teaches as a whole, on every model and head of the box."""

import pytest
import torch
from torch import nn

from tests.support.numerics.tensor_memory import peak_bytes
from tests.trainables.training.support.fakes import Bag, some_batch
from tests.trainables.training.support.steps import (
    DROPPED,
    ROWS,
    SHAPES,
    cases,
    check_same,
    learner,
    round_up_width,
    small,
)
from trainables.assembly import batch_cost, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.layers.plain import GlobalStream
from trainables.testing.arms import having
from trainables.training.config import train_config
from trainables.training.step import Learner, objective, one_step


@pytest.mark.parametrize(("name", "head"), cases())
def test_parts_teach_what_the_batch_teaches(name: str, head: str) -> None:
    shape = SHAPES[head]
    raw = small(name, shape, balance="none")
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    whole = round_up_width(learner(raw, shape), batch)
    for parts in (2, 4):
        check_same(round_up_width(learner(raw, shape, accumulate=parts), batch), whole)


def test_more_parts_than_samples_are_as_many_as_samples() -> None:
    batch = some_batch(rows=3)
    whole = round_up_width(Learner(Bag().double(), train_config({"steps": 9}), seed=0), batch)
    config = train_config({"steps": 9, "accumulate": 8})
    check_same(round_up_width(Learner(Bag().double(), config, seed=0), batch), whole)


def test_a_cost_of_a_whole_batch_is_that_of_each_part() -> None:
    """Of the balance of experts, parts count by their shares of the samples."""
    shape = SHAPES["classify"]
    raw = small("sut", shape)
    assert batch_cost(model_config(raw)) == "the balance of experts"
    assert batch_cost(model_config(raw | {"balance": "none"})) is None
    batch = synthetic_batch(shape, ROWS, 9, seed=1)
    raw = having(raw, **dict.fromkeys(DROPPED, 0.0), gating_dropout=0.0)
    one = learner(raw, shape, accumulate=2)
    for part in (batch.rows(0, 4), batch.rows(4, 7)):
        set_dropout_context(one.model, 0, 0)
        (objective(one.model(part), one.config) * len(part.labels) / ROWS).backward()
    expected = {name: p.grad for name, p in one.model.named_parameters() if p.grad is not None}
    _, gradient = round_up_width(learner(raw, shape, accumulate=2), batch)
    for name, each in gradient.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-7, atol=1e-10)
    _, whole = round_up_width(learner(raw, shape), batch)
    router = next(name for name in whole if "router" in name)
    assert not torch.allclose(whole[router], gradient[router], rtol=1e-3)


def test_memory_is_that_of_a_part() -> None:
    shape = SHAPES["classify"]
    raw = small("universal", shape, early_exit="none")
    batch = synthetic_batch(shape, 32, 9, seed=1)

    def peak(parts: int) -> int:
        one = learner(raw, shape, accumulate=parts)
        one_step(one, batch, 0)  # moments of the optimiser are there then
        return peak_bytes(lambda: one_step(one, batch, 1))

    assert peak(8) < peak(1) / 4


class Normed(Bag):
    """A bag whose states are normed over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)


def test_norms_over_a_batch_are_refused() -> None:
    shown = r"accumulate must be 1 for a model that norms over all samples .* got BatchNorm1d at norm: drop"
    with pytest.raises(ValueError, match=shown):
        Learner(Normed(), train_config({"steps": 1, "accumulate": 2}), seed=0)
    Learner(Normed(), train_config({"steps": 1}), seed=0)


def test_what_draws_without_places_draws_anew_in_each_part() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    stream = GlobalStream(model)
    keys = []
    for part in (0, 1, 0):
        set_dropout_context(nn.ModuleList([stream]), 1, 2, part)
        keys.append(stream.draw())
    assert keys[0] == keys[2] != keys[1]
