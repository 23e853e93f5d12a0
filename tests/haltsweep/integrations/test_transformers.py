"""The Transformers callback reports, resumes identically, and ends the training when the trial is stopped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra `integrations`")

from tests.support.training_code.own_code import importable_files
from trainables.custom import outside
from trainables.protocol import Job
from trainables.testing import trainable_contract
from trainables.testing.contract import run_uninterrupted

# Ignore the library's warnings about small data, missing GPUs and the like.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CODE = """
from pathlib import Path

import torch
from greenlet import GreenletExit
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from haltsweep.integrations.transformers import TransformersTrialCallback

class Data(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x = torch.randint(0, 20, (n, 6), generator=g)
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return {"input_ids": self.x[i], "labels": int(self.x[i].sum() % 2)}

def train(settings, trial):
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, hidden_dropout_prob=0.3)
    model = BertForSequenceClassification(config)
    reports = TransformersTrialCallback(trial)
    arguments = TrainingArguments(output_dir=trial.folder, num_train_epochs=3, per_device_train_batch_size=8,
        report_to=[], disable_tqdm=True, use_cpu=True, **settings)
    trainer = Trainer(model, arguments, train_dataset=Data(24), eval_dataset=Data(16), callbacks=[reports])
    try:
        trainer.train(resume_from_checkpoint=reports.checkpoint)
    except GreenletExit:
        Path(__file__).with_name("unwound").touch()
        raise
"""
EPOCHS = {"eval_strategy": "epoch", "save_strategy": "epoch"}
TIMES = {f"eval/{name}" for name in ("runtime", "samples_per_second", "steps_per_second")}


@pytest.fixture(autouse=True)
def fine_tuning(tmp_path: Path) -> Iterator[None]:
    with importable_files(tmp_path, {"fine_tuning.py": CODE}):
        yield


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (EPOCHS | {"load_best_model_at_end": True, "save_total_limit": 1}, [3, 6, 9]),
        ({"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "epoch"}, [2, 4, 6, 8, 9]),
    ],
)
def test_callback_reports_and_resumes_identically(
    settings: dict[str, Any], steps: list[int], tmp_path: Path
) -> None:
    contract = trainable_contract("fine_tuning:train", splits=(), machine=frozenset(TIMES))()
    contract.test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one(settings, tmp_path)
    measurements, workload = run_uninterrupted(contract.load_trainable().workload, Job(settings, 1))
    workload.close()
    assert [measurement.step for measurement in measurements] == steps
    assert all("eval/loss" in measurement.metrics for measurement in measurements)


def test_stopped_trial_ends_the_training(tmp_path: Path) -> None:
    workload = outside.load("fine_tuning:train").workload(Job(EPOCHS, 1))
    workload.advance()
    workload.close()
    assert (tmp_path / "unwound").exists()
