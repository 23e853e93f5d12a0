"""Training between reports: metrics of each report, and resuming without any difference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.support.complete_runs import repeatable_metrics, run
from tests.trainables.training.support.fakes import FakeSources
from trainables.checkpoint import CheckpointError, weights
from trainables.protocol import Diverged, Job, Phase
from trainables.training import Training, workload
from trainables.training.state import read_selected


@pytest.fixture(autouse=True)
def _fake_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "Sources", FakeSources)


def job(phase: Phase = "confirm", seed: int = 1, model: Mapping[str, Any] | None = None, **train: Any) -> Job:
    settings = {
        "task": {"name": "fake"},
        "model": dict(model or {}),
        "train": {"steps": 7, "batch_size": 4, "lr": 0.05, "report_every": 3} | train,
    }
    return Job(settings, seed, phase, splits=() if phase == "search" else ("far", "farther"))


def final_weights(training: Training) -> dict[str, torch.Tensor]:
    return weights(training._state.learner.model)


def assert_same_weights(training: Training, expected_training: Training) -> None:
    a, b = final_weights(training), final_weights(expected_training)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_every_measurement_has_all_metrics() -> None:
    measurements = run(Training(job()))
    text = "accuracy loss depth depth_p10 depth_p50 depth_p90 depth_bound saved ponder floor flops"
    quantities = set(text.split())
    train = {"loss", "accuracy", "ponder", "grad_norm", "lr", "tokens_per_s", "flops", "seconds_per_epoch"}
    always = {f"valid/{q}" for q in quantities} | {f"train/{q}" for q in train} | {"model/parameters"}
    tests = {f"{split}/{q}" for split in ("far", "farther") for q in quantities}
    assert [set(m.metrics) for m in measurements] == [
        always,
        always,
        always | tests | {"model/selected_step"},
    ]
    assert measurements[0].metrics["model/parameters"] == 8 * 4 + 4 * 3 + 4


def test_test_splits_are_opened_only_after_the_last_step() -> None:
    training = Training(job())
    training.advance()
    training.advance()
    assert set(FakeSources.opened_splits) == {"train", "valid"}
    training.advance()
    assert FakeSources.opened_splits[-3:] == ["valid", "far", "farther"]


def test_confirm_trials_report_the_digests_of_their_splits() -> None:
    *earlier_measurements, last = run(Training(job()))
    assert not any(measurement.attributes for measurement in earlier_measurements)
    assert last.attributes == {
        f"{split}/digest": f"digest of {split}" for split in ("valid", "far", "farther")
    }
    assert not any(measurement.attributes for measurement in run(Training(job("search"))))


@pytest.mark.parametrize(("reports", "select"), [(0, "best"), (1, "last"), (2, "best"), (3, "best")])
def test_training_resumed_at_any_report_is_identical(tmp_path: Path, reports: int, select: str) -> None:
    uninterrupted = Training(job(select=select))
    expected = run(uninterrupted)
    interrupted = Training(job(select=select))
    measurements = [interrupted.advance() for _ in range(reports)]
    interrupted.save(tmp_path)
    interrupted.close()

    torch.manual_seed(999)  # no global generator matters
    resumed = Training(job(select=select))
    resumed.restore(tmp_path)
    assert resumed.finished == (reports == 3)
    measurements += run(resumed)
    assert list(map(repeatable_metrics, measurements)) == list(map(repeatable_metrics, expected))
    assert [m.step for m in measurements] == [m.step for m in expected]
    assert_same_weights(uninterrupted, resumed)


def test_learning_rate_is_halved_without_improvement_and_after_resuming(tmp_path: Path) -> None:
    def stuck_training() -> Training:
        return Training(job(lr=1e-30, halve_after=1, steps=12, report_every=2))

    def rates(training: Training) -> list[float]:
        return [m.metrics["train/lr"] / 1e-30 for m in run(training)]

    assert rates(stuck_training()) == pytest.approx([1, 1, 1, 0.5, 0.5, 0.25])
    interrupted, resumed = stuck_training(), stuck_training()
    for _ in range(4):
        interrupted.advance()
    interrupted.save(tmp_path)
    resumed.restore(tmp_path)
    assert rates(resumed) == pytest.approx([0.5, 0.25])


def test_best_weights_are_reported_and_saved(tmp_path: Path) -> None:
    training = Training(job(seed=6, lr=0.5, steps=8, report_every=1))
    measurements = run(training)
    accuracies = [m.metrics["valid/accuracy"] for m in measurements]
    best = accuracies.index(max(accuracies))
    assert best < 7, "the test needs a run whose last weights are not its best"
    assert measurements[-1].metrics["model/selected_step"] == best + 1

    stopped_training = Training(job(seed=6, lr=0.5, steps=8, report_every=1))
    for _ in range(best + 1):
        stopped_training.advance()
    training.save(tmp_path)
    selected = read_selected(tmp_path)
    assert (selected.step, selected.last_step) == (best + 1, 8)
    assert all(
        torch.equal(tensor, final_weights(stopped_training)[name])
        for name, tensor in selected.weights.items()
    )


def test_evaluation_of_the_best_weights_restores_the_last_ones() -> None:
    best, last = (Training(job(seed=6, lr=0.5, steps=8, report_every=1, select=s)) for s in ("best", "last"))
    tests = [run(training)[-1].metrics["far/loss"] for training in (best, last)]
    assert tests[0] != tests[1]
    assert_same_weights(best, last)


def test_patience_ends_a_training_without_improvement() -> None:
    training = Training(job(lr=1e-9, steps=50, report_every=2, patience=2))
    measurements = run(training)
    # The first validation is the best; two worse ones pass, and the third ends the training.
    assert [m.step for m in measurements] == [2, 4, 6, 8]
    assert measurements[-1].metrics["model/selected_step"] == 2
    assert "far/accuracy" in measurements[-1].metrics


def test_re_evaluation_uses_the_selected_weights(tmp_path: Path) -> None:
    training_ = Training(job(lr=0.5, steps=8, report_every=1))
    confirmed = run(training_)[-1].metrics
    training_.save(tmp_path)
    posthoc_job = job("posthoc", seed=77, lr=0.5, steps=8, report_every=1, eval_batch_size=3)
    training = Training(
        Job(posthoc_job.settings, posthoc_job.seed, "posthoc", posthoc_job.splits, source=tmp_path)
    )
    assert not training.finished
    measurement = training.advance()
    assert training.finished
    assert measurement.step == 8
    assert "train" not in FakeSources.opened_splits
    assert measurement.metrics["model/selected_step"] == confirmed["model/selected_step"]
    for name in ("far/loss", "far/accuracy", "farther/depth", "far/saved"):
        assert measurement.metrics[name] == confirmed[name]
    assert "valid/accuracy" in measurement.metrics
    assert not any(name.startswith("train/") for name in measurement.metrics)


def test_re_evaluation_requires_a_finished_and_fitting_checkpoint(tmp_path: Path) -> None:
    posthoc = job("posthoc")
    with pytest.raises(ValueError, match="posthoc"):
        Training(posthoc)
    source = Job(posthoc.settings, 1, "posthoc", posthoc.splits, source=tmp_path)
    with pytest.raises(CheckpointError, match=r"state\.json"):
        Training(source)
    training = Training(job())
    training.advance()
    training.save(tmp_path)
    with pytest.raises(CheckpointError):
        Training(source)
    run(training)
    training.save(tmp_path)
    wide_job = job("posthoc", model={"width": 6})
    with pytest.raises(CheckpointError, match=r"stored_shape=\(8, 4\) and model_shape=\(8, 6\)"):
        Training(Job(wide_job.settings, 1, "posthoc", wide_job.splits, source=tmp_path))


def test_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    Training(job()).save(tmp_path)
    with pytest.raises(CheckpointError, match=r"seed: .*1.*2"):
        Training(job(seed=2, lr=0.1)).restore(tmp_path)


def test_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    training = Training(job())
    training.save(tmp_path)
    state = tmp_path / "state.json"
    text = state.read_text()
    state.write_text(text.replace('"format": 2', '"format": 1'))
    with pytest.raises(CheckpointError, match="format 2"):
        training.restore(tmp_path)


def test_divergence_names_its_step() -> None:
    training = Training(job(lr=1e30, clip=None, steps=20, report_every=20))
    with pytest.raises(Diverged) as caught:
        run(training)
    assert 1 < caught.value.step < 20


def test_nonfinite_evaluation_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "evaluate", lambda *_: {"loss": float("inf"), "accuracy": 0.0})
    with pytest.raises(Diverged) as caught:
        Training(job()).advance()
    assert caught.value.step == 3
