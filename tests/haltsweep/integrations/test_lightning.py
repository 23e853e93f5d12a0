"""The Lightning callback in a real Trainer: reports, resumes bit for bit, and unwinds when a trial is stopped."""

from pathlib import Path

import pytest

pytest.importorskip("lightning", reason="needs the extra `integrations`")

from tests.support.own_code import importable
from trainables.testing import trainable_contract

CODE = '''
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from haltsweep.integrations.lightning import TrialCallback


class Model(LightningModule):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def training_step(self, batch, index):
        loss = (self.layers(batch[0])[:, 0] - batch[1]).square().mean()
        self.log("train/loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.settings["lr"])


class Validated(Model):
    def validation_step(self, batch, index):
        self.log("valid/loss", (self.layers(batch[0])[:, 0] - batch[1]).square().mean())


def data():
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x.sum(1))


def train(settings, trial):
    reports = TrialCallback(trial)
    trainer = Trainer(
        callbacks=[reports], max_epochs=3, logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, **settings["trainer"],
    )
    loaders = [DataLoader(data(), batch_size=8, shuffle=True)]
    if settings["validated"]:
        loaders.append(DataLoader(data(), batch_size=8))
    trainer.fit((Validated if settings["validated"] else Model)(settings), *loaders, ckpt_path=reports.checkpoint)
'''
