"""Averaging the best weights: which are kept, what their mean is, and that it is measured and continued."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainables.training.fakes import FakeSources
from tests.trainables.training.test_workload import job, repeatable, run
from trainables.checkpoint import read_json, weights, write_json
from trainables.training import Training, workload
from trainables.training.selected_weights import ScoredWeights, best, copied, mean
from trainables.training.state import STATE, read_selected

SETTINGS = {"lr": 0.5, "steps": 9, "report_every": 1}


@pytest.fixture(autouse=True)
def _fake_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)


def test_the_best_are_kept_and_of_equals_the_earlier() -> None:
    candidates: list[ScoredWeights] = []
    for step, accuracy in enumerate([0.5, 0.7, 0.5, 0.9, 0.7, 0.1]):
        candidates = best([*candidates, ScoredWeights(accuracy, step, {})], 3)
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
    found = mean(candidates)
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
        history.append(ScoredWeights(score, len(history) + 1, copied(weights(seen._state.learner.model))))
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
def test_it_goes_on_from_a_checkpoint_bit_for_bit(reports: int, tmp_path: Path) -> None:
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


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """There the candidates were listed under another key."""
    expected = run(Training(job(**SETTINGS, average_best=2)))
    before = Training(job(**SETTINGS, average_best=2))
    found = [before.advance() for _ in range(5)]
    before.save(tmp_path)
    scalars = read_json(tmp_path / STATE)
    listed = scalars.pop("candidates")
    assert len(listed) == 2
    write_json(tmp_path / STATE, scalars | {"shelf": listed})
    after = Training(job(**SETTINGS, average_best=2))
    after.restore(tmp_path)
    assert list(map(repeatable, found + run(after))) == list(map(repeatable, expected))


def test_a_moving_average_is_what_is_kept() -> None:
    settings = SETTINGS | {"ema": 0.5, "steps": 2}
    training = Training(job(**settings, average_best=2))
    run(training)
    seen = Training(job(**settings))
    averages = []
    while not seen.finished:
        seen.advance()
        assert seen._state.learner.average is not None
        averages.append(copied(seen._state.learner.average))
    best = training._state.best
    assert best is not None
    for name, tensor in best.items():
        torch.testing.assert_close(tensor, (averages[0][name] + averages[1][name]) / 2)


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


def test_one_is_the_best_itself(tmp_path: Path) -> None:
    one, other = Training(job(**SETTINGS)), Training(job(**SETTINGS, average_best=1))
    assert list(map(repeatable, run(one))) == list(map(repeatable, run(other)))
