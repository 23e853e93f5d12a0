"""Ranks that share the batches of a trial learn like one process, and none outlives the trial."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.trainables.training.support.fakes import BagOfWords, some_batch
from trainables.checkpoint import weights
from trainables.protocol import Job
from trainables.testing.resuming import TASK
from trainables.training.config import train_config
from trainables.training.ranks import RankFailed
from trainables.training.step import Learner, run_step, share_of_step
from trainables.training.workload import Training

MODEL = {"name": "universal", "width": 8, "heads": 2, "max_layers": 4, "dropout": 0.2}
TRAIN = {"steps": 4, "batch_size": 5, "lr": 0.01, "report_every": 2}
BUSY_TRIAL = """
import sys
from pathlib import Path
from tests.trainables.training.test_ranks import job_in
from trainables.training.workload import Training
training = Training(job_in(Path(sys.argv[1]), ranks=2, steps=10**6, report_every=1))
training.advance()
print("begun", flush=True)
while True:
    training.advance()
"""
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def job_in(data_dir: Path, model: Mapping[str, Any] = MODEL, **train: Any) -> Job:
    return Job({"task": TASK, "model": model, "train": TRAIN | train}, 1, "search", (), data_dir)


def other_ranks() -> list[psutil.Process]:
    """Return the ranks that this process started."""
    return [
        process for process in psutil.Process().children() if "trainables.training.rank" in process.cmdline()
    ]


def have_ended(processes: list[psutil.Process]) -> bool:
    """Return whether all processes end within a timeout."""
    return not psutil.wait_procs(processes, timeout=TIMEOUT_S)[1]


@pytest.mark.slow
def test_two_ranks_learn_like_one_process_and_resume(data_dir: Path, tmp_path: Path) -> None:
    single = Training(job_in(data_dir))
    expected = [single.advance().metrics for _ in "12"]
    metrics, training = [], Training(job_in(data_dir, ranks=2, accumulate=2))
    try:
        metrics.append(training.advance().metrics)
        assert len(other_ranks()) == 1
        training.save(tmp_path)
        training.close()
        assert not other_ranks()
        training = Training(job_in(data_dir, ranks=2, accumulate=2))
        training.restore(tmp_path)
        metrics.append(training.advance().metrics)
        learned, expected_weights = weights(training.model), weights(single.model)
        for name, value in expected_weights.items():
            torch.testing.assert_close(learned[name], value, rtol=1e-4, atol=1e-5)
    finally:
        training.close()
    assert not other_ranks()
    for metrics_, expected_metrics in zip(metrics, expected, strict=True):
        for name in ("train/loss", "train/accuracy", "train/ponder", "train/grad_norm", "valid/loss"):
            assert metrics_[name] == pytest.approx(expected_metrics[name], rel=1e-4), name


@pytest.mark.slow
def test_death_of_a_rank_ends_the_trial_with_one_error(data_dir: Path) -> None:
    training = Training(job_in(data_dir, ranks=2))
    try:
        training.advance()
        (rank,) = other_ranks()
        rank.kill()
        with pytest.raises(RankFailed, match=r"\b2\b"):
            training.advance()
    finally:
        training.close()
    assert have_ended([rank])
    assert not other_ranks()


def test_failed_start_of_a_rank_ends_the_trial(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RankFailed, match="rank 1"):
        Training(job_in(data_dir, ranks=2))
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_no_rank_outlives_a_killed_trial(data_dir: Path) -> None:
    command = [sys.executable, "-c", BUSY_TRIAL, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trial:
        assert trial.stdout.readline() == "begun\n"
        started = psutil.Process(trial.pid).children()
        os.kill(trial.pid, signal.SIGKILL)
    assert len(started) == 1
    assert have_ended(started)


@pytest.mark.parametrize("rows", [3, 7])
def test_shares_of_ranks_sum_to_the_step(rows: int) -> None:
    """Some ranks may have no rows."""
    batch, config = some_batch(rows=rows), train_config({"steps": 9, "clip": None})
    single_learner = Learner(BagOfWords().double(), config, seed=0)
    result = run_step(single_learner, batch, 0)
    shared = train_config({"steps": 9, "clip": None, "ranks": 4})
    ranks = [Learner(BagOfWords().double(), shared, seed=0) for _ in range(4)]
    numbers = sum(share_of_step(learner, batch, 0, rank) for rank, learner in enumerate(ranks))
    expected = torch.stack([result.loss, result.ponder, result.hits, result.counts])
    torch.testing.assert_close(numbers, expected.double())
    for name, parameter in single_learner.model.named_parameters():
        grads = [dict(learner.model.named_parameters())[name].grad for learner in ranks]
        torch.testing.assert_close(sum(grad for grad in grads if grad is not None), parameter.grad)
