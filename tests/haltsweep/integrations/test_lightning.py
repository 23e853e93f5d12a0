"""The Lightning callback reports, resumes identically, and ends the training when the trial is stopped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="needs the extra `integrations`")

from tests.support.training_code.own_code import importable_files
from trainables.custom import outside
from trainables.protocol import Job
from trainables.testing import trainable_contract
from trainables.testing.contract import run_uninterrupted

# Ignore Lightning's warnings about small data, missing GPUs and the like.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CODE = """
from pathlib import Path

import torch
from greenlet import GreenletExit
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from haltsweep.integrations.lightning import LightningTrialCallback


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def training_step(self, batch, index):
        loss = (self.layers(batch[0])[:, 0] - batch[1]).square().mean()
        self.log("train/loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Validated(Model):
    def validation_step(self, batch, index):
        self.log("valid/loss", (self.layers(batch[0])[:, 0] - batch[1]).square().mean())


def data():
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x.sum(1))


def train(settings, trial):
    reports = LightningTrialCallback(trial)
    trainer = Trainer(
        callbacks=[reports], max_epochs=3, logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, **settings["trainer"],
    )
    loaders = [DataLoader(data(), batch_size=8, shuffle=True)]
    if settings["validated"]:
        loaders.append(DataLoader(data(), batch_size=8))
    model = (Validated if settings["validated"] else Model)()
    try:
        trainer.fit(model, *loaders, ckpt_path=reports.checkpoint)
    except GreenletExit:
        Path(__file__).with_name("unwound").touch()
        raise
"""


@pytest.fixture(autouse=True)
def lit_module(tmp_path: Path) -> Iterator[None]:
    with importable_files(tmp_path, {"lit.py": CODE}):
        yield


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"validated": True, "trainer": {"val_check_interval": 0.34}}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"validated": False, "trainer": {}}, [3, 6, 9]),
    ],
)
def test_callback_reports_and_resumes_identically(
    settings: dict[str, Any], steps: list[int], tmp_path: Path
) -> None:
    contract = trainable_contract("lit:train", splits=())()
    contract.test_trial_stopped_at_every_report_ends_like_an_uninterrupted_one(settings, tmp_path)
    measurements, workload = run_uninterrupted(contract.load_trainable().workload, Job(settings, 1))
    workload.close()
    assert [measurement.step for measurement in measurements] == steps
    assert all({"train/loss", "valid/loss"} & measurement.metrics.keys() for measurement in measurements)


def test_stopped_trial_ends_the_training(tmp_path: Path) -> None:
    workload = outside.load("lit:train").workload(Job({"validated": True, "trainer": {}}, 1))
    workload.advance()
    workload.close()
    assert (tmp_path / "unwound").exists()
