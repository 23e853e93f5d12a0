"""Training of real models on ListOps: resuming, pairing of arms, splits, re-evaluation."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.training.support.complete_runs import repeatable_metrics, run
from trainables.checkpoint import CheckpointError, weights
from trainables.protocol import Job, Measurement, Phase
from trainables.testing.resuming import TASK
from trainables.training import Training
from trainables.training.config import train_config
from trainables.training.sources import Sources
from trainables.types import Batch

WIDTHS = {"width": 8, "heads": 2}
GUT = {"name": "universal", "max_layers": 4} | WIDTHS


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def job(data_dir: Path) -> "functools.partial[Job]":
    return functools.partial(make_job, data_dir)


def make_job(
    data_dir: Path,
    model: Mapping[str, Any] = GUT,
    *,
    seed: int = 1,
    phase: Phase = "confirm",
    source: Path | None = None,
    **train: Any,
) -> Job:
    defaults = {"steps": 5, "batch_size": 6, "lr": 0.01, "report_every": 2}
    settings = {"task": TASK, "model": dict(model), "train": defaults | train}
    splits = () if phase == "search" else ("near-iid", "length-200-300")
    return Job(settings, seed, phase, splits, data_dir, source)


def training_batches(training: Training) -> Iterator[Batch]:
    """Run the training, and yield its batches."""
    batches: list[Batch] = []
    model = training._state.learner.model
    with model.register_forward_pre_hook(lambda m, inputs: batches.append(inputs[0]) if m.training else None):
        run(training)
    return iter(batches)


def run_with_interruptions(job: Job, folder: Path) -> list[Measurement]:
    """Stop after every report, resume in a new object, and check that all numbers stay the same."""
    uninterrupted = Training(job)
    expected = run(uninterrupted)
    measurements: list[Measurement] = []
    training = Training(job)
    while not training.finished:
        measurements.append(training.advance())
        saved = folder / str(measurements[-1].step)
        saved.mkdir()
        training.save(saved)
        training.close()
        training = Training(job)
        training.restore(saved)
    assert list(map(repeatable_metrics, measurements)) == list(map(repeatable_metrics, expected))
    resumed_weights, expected_weights = (weights(t._state.learner.model) for t in (training, uninterrupted))
    assert all(torch.equal(resumed_weights[name], expected_weights[name]) for name in expected_weights)
    return measurements


def test_resumed_model_with_sampled_experts_and_decoder_is_identical(tmp_path: Path) -> None:
    mixture = {"experts": 3, "active": 2, "sampled": 1}
    model = {"name": "sut", "width": 8, "max_layers": 3, "feedforward": mixture | {"width": 6}}
    model["attention"] = mixture | {"heads": 1, "head_width": 4, "window": 2}
    settings = {
        "task": {"name": "transduction", "train_examples": 60, "valid_examples": 10, "test_examples": 5},
        "model": model,
        "train": {"steps": 4, "batch_size": 6, "lr": 0.01, "report_every": 2, "decode_examples": 5},
    }
    run_with_interruptions(Job(settings, 1, "confirm", ("near-iid",), tmp_path), tmp_path)


def test_arms_with_one_seed_get_the_same_batches(job: Any) -> None:
    transformer = {"name": "transformer", "layers": 2} | WIDTHS
    batches, other_batches = (list(training_batches(Training(job(model)))) for model in (GUT, transformer))
    assert len(batches) == 5
    for batch, other_batch in zip(batches, other_batches, strict=True):
        assert torch.equal(batch.tokens, other_batch.tokens)
        assert torch.equal(batch.labels, other_batch.labels)
    other_seed = next(training_batches(Training(job(seed=2))))
    assert not torch.equal(other_seed.labels, batches[0].labels)


def test_batch_tokens_limit_inputs_and_answers(tmp_path: Path) -> None:
    """Answers have an end token, so they are longer than inputs by one."""
    from tests.oracles.solvers.transduction_solver import SMALL

    train = {"steps": 1, "batch_tokens": 42, "order": "bucketed"}
    job_ = Job({"task": SMALL, "model": GUT, "train": train}, seed=1, data_dir=tmp_path)
    sources = Sources(job_, train_config(train), torch.device("cpu"))
    batches = [sources.train_batch(step) for step in range(30)]
    sizes = [batch.labels.numel() for batch in batches]
    assert all(size <= 42 for size in sizes)
    assert all(batch.labels.shape[1] > batch.tokens.shape[1] for batch in batches)
    assert {len(batch.tokens) for batch in batches} >= {6, 7}


def test_validation_examples_are_the_same_for_every_seed(job: Any) -> None:
    def labels(seed: int, limit: int | None) -> list[list[int]]:
        job_ = job(seed=seed, valid_examples=limit, eval_batch_size=7)
        batches = Sources(job_, train_config(job_.settings["train"]), torch.device("cpu")).batches("valid")
        rows = [row for batch in batches for row in zip(batch.tokens, batch.mask, batch.labels, strict=True)]
        return sorted([int(label), *tokens[mask].tolist()] for tokens, mask, label in rows)

    assert len(labels(1, None)) == len(labels(1, 1000)) == 40
    assert labels(1, 15) == labels(2, 15)
    assert len(labels(1, 15)) == 15
    assert all(row in labels(1, None) for row in labels(1, 15))


def test_digests_identify_the_evaluated_examples(job: Any, tmp_path: Path) -> None:
    def digests(job_: Job, *splits: str) -> dict[str, str]:
        sources = Sources(job_, train_config(job_.settings["train"]), torch.device("cpu"))
        for split in splits:
            next(sources.batches(split))
        return sources.digests

    all_digests = digests(job(), "valid", "near-iid")
    assert all_digests == digests(job(seed=2), "valid", "near-iid")
    assert digests(job(valid_examples=1000), "valid") == {"valid": all_digests["valid"]}
    assert digests(job(valid_examples=15), "valid") == {"valid": f"{all_digests['valid']}/15"}
    task = {"name": "algorithms", "test_lengths": [21], "test_examples": 2, "valid_examples": 2}
    words = {"task": {**task, "form": "next_token"}, "model": GUT, "train": {"steps": 1, "batch_size": 2}}
    [digest] = digests(Job(words, seed=1, data_dir=tmp_path), "length-21").values()
    assert digest.endswith(' {"form": "next_token"}')


def test_eval_tokens_limit_the_batches_of_long_splits(job: Any) -> None:
    job_ = job(eval_tokens=600)
    batches = Sources(job_, train_config(job_.settings["train"]), torch.device("cpu")).batches(
        "length-200-300"
    )
    assert [batch.mask.shape[0] for batch in batches] == [2, 2, 1]


def test_re_evaluation_uses_a_checkpoint_under_other_settings(job: Any, tmp_path: Path) -> None:
    training = Training(job(steps=3))
    confirmed = run(training)[-1].metrics
    training.save(tmp_path)

    def re_evaluate(**changed: Any) -> Mapping[str, float]:
        training = Training(job(GUT | changed, phase="posthoc", source=tmp_path, steps=3))
        measurement = training.advance()
        assert training.finished
        assert measurement.step == 3
        return measurement.metrics

    same_metrics = re_evaluate()
    assert all(
        same_metrics[name] == confirmed[name]
        for name in same_metrics
        if name.startswith(("near-iid/", "length-"))
    )
    early_metrics = re_evaluate(halt={"threshold": 0.01})
    assert early_metrics["near-iid/depth"] < same_metrics["near-iid/depth"]
    assert re_evaluate(early_exit="none")["near-iid/saved"] == 0
    assert re_evaluate(max_layers=9)["near-iid/depth"] >= same_metrics["near-iid/depth"]
    with pytest.raises(CheckpointError):
        re_evaluate(gate=False)
