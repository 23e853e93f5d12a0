"""Evaluation uses the moving average of weights, or the mean of the best ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.support.fakes import BagOfWords, FakeSources, some_batch
from tests.trainables.training.test_workload import final_weights, job, repeatable_metrics, run
from trainables.checkpoint import weights
from trainables.training import Training, workload
from trainables.training.config import train_config
from trainables.training.selected_weights import ScoredWeights, best_candidates, copy_tensors, mean_weights
from trainables.training.state import read_selected
from trainables.training.step import Learner, run_step

SETTINGS = {"lr": 0.5, "steps": 9, "report_every": 1}


@pytest.fixture(autouse=True)
def _fake_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)


def test_moving_average_weighs_all_earlier_weights() -> None:
    model, decay = BagOfWords().double(), 0.75
    learner = Learner(model, train_config({"steps": 5, "lr": 0.1, "ema": decay}), seed=0)
    history = [copy_tensors(weights(model))]
    for step in range(5):
        run_step(learner, some_batch(step), step)
        history.append(copy_tensors(weights(model)))
    shares = [decay**5, *((1 - decay) * decay ** (4 - step) for step in range(5))]
    for name, average in learner.average.items():
        expected = sum(share * earlier[name] for share, earlier in zip(shares, history, strict=True))
        torch.testing.assert_close(average, expected)


@pytest.mark.parametrize("select", ["best", "last"])
def test_tests_and_re_evaluation_use_the_average(select: Any, tmp_path: Path) -> None:
    settings = {"lr": 0.5, "steps": 8, "report_every": 1, "select": select, "ema": 0.5}
    training = Training(job(**settings))
    metrics = run(training)[-1].metrics
    training.save(tmp_path)
    selected = read_selected(tmp_path)
    assert selected.step == metrics["model/selected_step"]
    stopped_training = Training(job(**settings))
    for _ in range(selected.step):
        stopped_training.advance()
    average = stopped_training._state.learner.average
    assert all(torch.equal(tensor, average[name]) for name, tensor in selected.weights.items())
    assert any(
        not torch.equal(tensor, final_weights(stopped_training)[name]) for name, tensor in average.items()
    )
    posthoc_job = job("posthoc", **settings)
    posthoc_metrics = Training(replace(posthoc_job, source=tmp_path)).advance().metrics
    assert posthoc_metrics["far/loss"] == metrics["far/loss"]


def test_resumed_average_is_identical(tmp_path: Path) -> None:
    uninterrupted, interrupted, resumed = (Training(job(select="best", ema=0.6)) for _ in range(3))
    expected = run(uninterrupted)
    measurements = [interrupted.advance()]
    interrupted.save(tmp_path)
    resumed.restore(tmp_path)
    measurements += run(resumed)
    assert list(map(repeatable_metrics, measurements)) == list(map(repeatable_metrics, expected))
    selected, resumed_selected = uninterrupted._state.selected, resumed._state.selected
    assert all(torch.equal(selected[name], resumed_selected[name]) for name in selected)


def test_best_candidates_prefer_earlier_ones_of_equal_score() -> None:
    candidates: list[ScoredWeights] = []
    for step, accuracy in enumerate([0.5, 0.7, 0.5, 0.9, 0.7, 0.1]):
        candidates = best_candidates([*candidates, ScoredWeights(accuracy, step, {})], 3)
    assert [(candidate.step, candidate.score) for candidate in candidates] == [(1, 0.7), (3, 0.9), (4, 0.7)]


def test_mean_weights_average_each_element() -> None:
    values = [1.0, 2.0, 6.0]
    candidates = [
        ScoredWeights(
            0.5,
            step,
            {"w": torch.full((2,), value), "n": torch.tensor(step), "h": torch.tensor(value).half()},
        )
        for step, value in enumerate(values)
    ]
    mean = mean_weights(candidates)
    assert mean["w"].tolist() == [3.0, 3.0]
    assert mean["h"].dtype == torch.float16
    assert mean["n"] == 2


@pytest.mark.parametrize("select_by", ["accuracy", "loss"])
def test_tests_and_re_evaluation_use_the_mean_of_the_best(select_by: str, tmp_path: Path) -> None:
    """A second run without averaging finds the three best of nine validations."""
    settings = SETTINGS | {"average_best": 3, "select_by": select_by}
    training = Training(job(**settings))
    measurements = run(training)
    unaveraged = Training(job(**SETTINGS))
    history = []
    while not unaveraged.finished:
        value = unaveraged.advance().metrics[f"valid/{select_by}"]
        score = -value if select_by == "loss" else value
        history.append(
            ScoredWeights(score, len(history) + 1, copy_tensors(weights(unaveraged._state.learner.model)))
        )
    best = sorted(history, key=lambda candidate: -candidate.score)[:3]
    last = max(candidate.step for candidate in best)
    assert measurements[-1].metrics["model/selected_step"] == last
    training.save(tmp_path)
    selected = read_selected(tmp_path)
    assert (selected.step, selected.last_step) == (last, 9)
    for name, tensor in selected.weights.items():
        expected = sum(candidate.weights[name].double() for candidate in best) / 3
        torch.testing.assert_close(tensor, expected.float(), rtol=1e-6, atol=1e-7)
    posthoc_job = replace(job("posthoc", **settings), source=tmp_path)
    assert Training(posthoc_job).advance().metrics["far/loss"] == measurements[-1].metrics["far/loss"]
    assert sorted(file.name for file in tmp_path.glob("*kept*")) == []


@pytest.mark.parametrize("reports", [1, 5])
def test_resumed_best_weights_are_identical(reports: int, tmp_path: Path) -> None:
    uninterrupted, interrupted, resumed = (Training(job(**SETTINGS, average_best=2)) for _ in range(3))
    expected = run(uninterrupted)
    measurements = [interrupted.advance() for _ in range(reports)]
    interrupted.save(tmp_path)
    resumed.restore(tmp_path)
    measurements += run(resumed)
    assert list(map(repeatable_metrics, measurements)) == list(map(repeatable_metrics, expected))
    best, resumed_best = uninterrupted._state.best, resumed._state.best
    assert all(torch.equal(best[name], resumed_best[name]) for name in best)


def test_search_trials_store_no_weights(tmp_path: Path) -> None:
    training = Training(job("search", **SETTINGS, average_best=3))
    training.advance()
    training.save(tmp_path)
    assert list(tmp_path.glob("*kept*")) == []
    run(training)
    assert training._state.best is None
