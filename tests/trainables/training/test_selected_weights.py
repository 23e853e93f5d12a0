"""Weights that are measured and reported: their moving average, and the mean of the best ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.support.fakes import Bag, FakeSources, some_batch
from tests.trainables.training.test_workload import final_weights, job, repeatable, run
from trainables.checkpoint import weights
from trainables.training import Training, workload
from trainables.training.config import train_config
from trainables.training.selected_weights import (
    ScoredWeights,
    best_candidates,
    copy_tensors,
    mean_weights,
    temporary_weights,
)
from trainables.training.state import read_selected
from trainables.training.step import Learner, one_step

SETTINGS = {"lr": 0.5, "steps": 9, "report_every": 1}


@pytest.fixture(autouse=True)
def _fake_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)


def test_an_average_is_the_sum_of_all_weights_so_far_with_falling_shares() -> None:
    model, decay = Bag().double(), 0.75
    learner = Learner(model, train_config({"steps": 5, "lr": 0.1, "ema": decay}), seed=0)
    history = [copy_tensors(weights(model))]
    for step in range(5):
        one_step(learner, some_batch(step), step)
        history.append(copy_tensors(weights(model)))
    assert learner.average is not None
    shares = [decay**5, *((1 - decay) * decay ** (4 - step) for step in range(5))]
    for name, average in learner.average.items():
        expected = sum(share * past[name] for share, past in zip(shares, history, strict=True))
        torch.testing.assert_close(average, expected)


def test_a_model_that_held_other_weights_has_its_own_again() -> None:
    model = Bag()
    own, other = copy_tensors(weights(model)), {name: value + 1 for name, value in weights(model).items()}
    with temporary_weights(model, other):
        assert all(torch.equal(value, other[name]) for name, value in weights(model).items())
    assert all(torch.equal(value, own[name]) for name, value in weights(model).items())


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
def test_an_average_goes_on_from_a_checkpoint_bit_for_bit(reports: int, select: str, tmp_path: Path) -> None:
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


def test_the_best_are_kept_and_of_equals_the_earlier() -> None:
    candidates: list[ScoredWeights] = []
    for step, accuracy in enumerate([0.5, 0.7, 0.5, 0.9, 0.7, 0.1]):
        candidates = best_candidates([*candidates, ScoredWeights(accuracy, step, {})], 3)
    assert [(each.step, each.score) for each in candidates] == [(1, 0.7), (3, 0.9), (4, 0.7)]


def test_the_mean_is_that_of_each_number() -> None:
    values = [1.0, 2.0, 6.0]
    candidates = [
        ScoredWeights(
            0.5,
            step,
            {"w": torch.full((2,), value), "n": torch.tensor(step), "h": torch.tensor(value).half()},
        )
        for step, value in enumerate(values)
    ]
    found = mean_weights(candidates)
    assert found["w"].tolist() == [3.0, 3.0]
    assert found["h"].dtype == torch.float16
    assert found["n"] == 2


@pytest.mark.parametrize("select_by", ["accuracy", "loss"])
def test_tests_and_rereading_take_the_mean_of_the_best(select_by: str, tmp_path: Path) -> None:
    """The three best of nine validations, found by running again without averaging."""
    settings = SETTINGS | {"average_best": 3, "select_by": select_by}
    training = Training(job(**settings))
    found = run(training)
    seen = Training(job(**SETTINGS))
    history = []
    while not seen.finished:
        value = seen.advance().metrics[f"valid/{select_by}"]
        score = -value if select_by == "loss" else value
        history.append(
            ScoredWeights(score, len(history) + 1, copy_tensors(weights(seen._state.learner.model)))
        )
    chosen = sorted(history, key=lambda each: -each.score)[:3]
    last = max(each.step for each in chosen)
    assert found[-1].metrics["model/selected_step"] == last
    training.save(tmp_path)
    selected = read_selected(tmp_path)
    assert (selected.step, selected.last_step) == (last, 9)
    for name, tensor in selected.weights.items():
        expected = sum(each.weights[name].double() for each in chosen) / 3
        torch.testing.assert_close(tensor, expected.float(), rtol=1e-6, atol=1e-7)
    again = replace(job("posthoc", **settings), source=tmp_path)
    assert Training(again).advance().metrics["far/loss"] == found[-1].metrics["far/loss"]
    assert sorted(file.name for file in tmp_path.glob("*kept*")) == []


@pytest.mark.parametrize("reports", [1, 2, 5, 9])
def test_the_best_weights_go_on_from_a_checkpoint_bit_for_bit(reports: int, tmp_path: Path) -> None:
    undisturbed = Training(job(**SETTINGS, average_best=2))
    expected = run(undisturbed)
    before = Training(job(**SETTINGS, average_best=2))
    found = [before.advance() for _ in range(reports)]
    before.save(tmp_path)
    kept = len(list(tmp_path.glob("kept-*.safetensors")))
    assert kept == (0 if before.finished else min(reports, 2))
    after = Training(job(**SETTINGS, average_best=2))
    after.restore(tmp_path)
    found += run(after)
    assert list(map(repeatable, found)) == list(map(repeatable, expected))
    one, other = undisturbed._state.best, after._state.best
    assert one is not None
    assert other is not None
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_best_by_loss_and_by_accuracy_differ() -> None:
    def found(**more: str) -> tuple[float, list[float], list[float]]:
        measured = [m.metrics for m in run(Training(job(**SETTINGS, **more)))]
        losses, accuracies = ([m[f"valid/{name}"] for m in measured] for name in ("loss", "accuracy"))
        return measured[-1]["model/selected_step"], losses, accuracies

    step, losses, accuracies = found(select_by="loss")
    assert step == 1 + losses.index(min(losses))
    other, *_ = found()
    assert other == 1 + accuracies.index(max(accuracies))
    assert step != other, "a training in which both agree would prove little"


def test_searching_keeps_no_weights(tmp_path: Path) -> None:
    training = Training(job("search", **SETTINGS, average_best=3))
    training.advance()
    training.save(tmp_path)
    assert list(tmp_path.glob("*kept*")) == []
    run(training)
    assert training._state.best is None
