"""The moving average of weights: its recursion, and that it is what gets measured, chosen and continued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.fakes import Bag, FakeSources, some_batch
from tests.trainables.training.test_workload import final_weights, job, repeatable, run
from trainables.checkpoint import weights
from trainables.training import Training, workload
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.selected_weights import copied, follow, holding
from trainables.training.state import read_selected
from trainables.training.step import Learner, one_step


@pytest.fixture(autouse=True)
def _fake_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)


def test_it_is_the_sum_of_all_weights_so_far_with_falling_shares() -> None:
    model, decay = Bag().double(), 0.75
    learner = Learner(model, train_config({"steps": 5, "lr": 0.1, "ema": decay}), seed=0)
    history = [copied(weights(model))]
    for step in range(5):
        one_step(learner, some_batch(step), step)
        history.append(copied(weights(model)))
    assert learner.average is not None
    shares = [decay**5, *((1 - decay) * decay ** (4 - step) for step in range(5))]
    for name, average in learner.average.items():
        expected = sum(share * past[name] for share, past in zip(shares, history, strict=True))
        torch.testing.assert_close(average, expected)


def test_what_is_no_real_number_is_taken_as_it_is() -> None:
    model = torch.nn.BatchNorm1d(2)
    average = copied(weights(model))
    model.num_batches_tracked.fill_(7)
    model.weight.data.fill_(3.0)
    follow(average, model, 0.5)
    assert average["num_batches_tracked"] == 7
    assert average["weight"].tolist() == [2.0, 2.0]


def test_a_model_that_held_other_weights_has_its_own_again() -> None:
    model = Bag()
    own, other = copied(weights(model)), {name: value + 1 for name, value in weights(model).items()}
    with holding(model, other):
        assert all(torch.equal(value, other[name]) for name, value in weights(model).items())
    assert all(torch.equal(value, own[name]) for name, value in weights(model).items())


def test_an_average_that_hardly_moves_is_measured_as_the_initial_weights() -> None:
    training = Training(job(lr=0.5, ema=0.9999999))
    initial = Training(job())._state.learner
    before = evaluate(initial, FakeSources(job(), initial.config, initial.device).batches("valid"))
    metrics = training.advance().metrics
    assert metrics["valid/loss"] == pytest.approx(before["loss"], rel=1e-4)
    assert Training(job(lr=0.5)).advance().metrics["valid/loss"] != pytest.approx(before["loss"], rel=1e-2)
    assert metrics["train/loss"] == Training(job(lr=0.5)).advance().metrics["train/loss"]


@pytest.mark.parametrize("select", ["best", "last"])
def test_tests_and_rereading_take_the_average(select: Any, tmp_path: Path) -> None:
    settings = {"lr": 0.5, "steps": 8, "report_every": 1, "select": select, "ema": 0.5}
    training = Training(job(**settings))
    found = run(training)[-1].metrics
    training.save(tmp_path)
    selected = read_selected(tmp_path)
    assert selected.step == found["model/selected_step"]
    stopped = Training(job(**settings))
    for _ in range(selected.step):
        stopped.advance()
    average = stopped._state.learner.average
    assert average is not None
    assert all(torch.equal(tensor, average[name]) for name, tensor in selected.weights.items())
    assert any(not torch.equal(tensor, final_weights(stopped)[name]) for name, tensor in average.items())
    again = job("posthoc", **settings)
    reread = Training(replace(again, source=tmp_path)).advance().metrics
    assert reread["far/loss"] == found["far/loss"]


@pytest.mark.parametrize("select", ["best", "last"])
@pytest.mark.parametrize("reports", [1, 3])
def test_it_goes_on_from_a_checkpoint_bit_for_bit(reports: int, select: str, tmp_path: Path) -> None:
    undisturbed = Training(job(select=select, ema=0.6))
    expected = run(undisturbed)
    before = Training(job(select=select, ema=0.6))
    found = [before.advance() for _ in range(reports)]
    before.save(tmp_path)
    after = Training(job(select=select, ema=0.6))
    after.restore(tmp_path)
    found += run(after)
    assert list(map(repeatable, found)) == list(map(repeatable, expected))
    one, other = undisturbed._state.selected, after._state.selected
    assert one is not None
    assert other is not None
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_it_is_saved_only_where_it_is_kept_and_read_again(tmp_path: Path) -> None:
    def saved(name: str, training: Training) -> bool:
        (tmp_path / name).mkdir()
        training.save(tmp_path / name)
        return (tmp_path / name / "average.safetensors").exists()

    training = Training(job(ema=0.6))
    training.advance()
    assert saved("halfway", training)
    run(training)
    assert not saved("finished", training)
    assert not saved("without", Training(job()))
