"""Usual scripts around libraries that keep state in the process or in files of a fixed name.

Each measures `level + seed / 100`, and any other number if it meets what another trial has left behind.
"""

import os
import time

import hydra
import mlflow
import torch
from accelerate import Accelerator
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

EPOCHS = 3
BEST = 2
"""The epoch whose model measures best, and right; the last one measures less."""


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.ones(1), "labels": torch.zeros(1)}


def weight(settings, trial, epoch):
    return settings["level"] + trial.seed / 100 - abs(epoch - BEST) / 1000


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight * 0).sum(), "logits": x * self.weight}


def hugging_face(settings, trial):
    """The best checkpoint of `results/` is loaded at the end."""

    class Scheduled(TrainerCallback):
        def on_epoch_begin(self, args, state, control, model=None, **_):
            time.sleep(0.05)
            model.weight.data.fill_(weight(settings, trial, round(state.epoch) + 1))

    trainer = Trainer(
        model=Constant(),
        args=TrainingArguments(
            output_dir="results",
            num_train_epochs=EPOCHS,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="x",
            greater_is_better=True,
            learning_rate=0.0,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Numbers(),
        eval_dataset=Numbers(),
        compute_metrics=lambda found: {"x": float(found.predictions.mean())},
        callbacks=[Scheduled()],
    )
    trainer.train()
    return trainer.evaluate()["eval_x"]


def lightning(settings, trial):
    """The best checkpoint of `checkpoints/best.ckpt` is loaded at the end."""

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = Constant()

        def training_step(self, batch, index):
            return self.inner(batch["x"])["loss"]

        def on_train_epoch_start(self):
            time.sleep(0.05)
            self.inner.weight.data.fill_(weight(settings, trial, self.current_epoch + 1))

        def validation_step(self, batch, index):
            self.log("x", self.inner(batch["x"])["logits"].mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    saved = ModelCheckpoint(dirpath="checkpoints", filename="best", monitor="x", mode="max")
    trainer = LightningTrainer(
        max_epochs=EPOCHS,
        callbacks=[saved],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Model(), DataLoader(Numbers()), DataLoader(Numbers()))
    found = Model.load_from_checkpoint("checkpoints/best.ckpt")
    return found.inner.weight.item()


def open_run(settings, trial):
    """A run that nobody ends: the next `start_run` of the same process fails."""
    mlflow.set_tracking_uri("sqlite:///mine.db")
    run = mlflow.start_run()
    mlflow.log_param("seed", trial.seed)
    mlflow.log_metric("x", weight(settings, trial, BEST))
    return mlflow.get_run(run.info.run_id).data.metrics["x"] if len(mlflow.search_runs()) == 1 else -1.0


def logged_without_a_run(settings, trial):
    """`log_param` opens a run by itself; another seed's value in the same run fails."""
    mlflow.log_param("seed", trial.seed)
    mlflow.log_metric("x", weight(settings, trial, BEST))
    return mlflow.active_run() and mlflow.get_run(mlflow.active_run().info.run_id).data.metrics["x"]


def composed(settings, trial):
    """Hydra's global state refuses to be set up twice."""
    hydra.initialize(version_base=None, config_path=None)
    found = hydra.compose(overrides=[f"+level={weight(settings, trial, BEST)}"])
    return found.level


def accelerated(settings, trial):
    """Accelerate keeps its state in a class, and refuses another precision in one process."""
    asked = "bf16" if trial.seed % 2 else "no"
    accelerator = Accelerator(cpu=True, mixed_precision=asked)
    model = accelerator.prepare(Constant())
    if accelerator.mixed_precision != asked:
        return -1.0
    accelerator.unwrap_model(model).weight.data.fill_(weight(settings, trial, BEST))
    accelerator.save_state("state")
    accelerator.unwrap_model(model).weight.data.fill_(-1.0)
    time.sleep(0.05)
    accelerator.load_state("state")
    return accelerator.unwrap_model(model).weight.item()


def distributed(settings, trial):
    """A process group that is never destroyed."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    found = torch.tensor([weight(settings, trial, BEST)])
    torch.distributed.all_reduce(found)
    return found.item()


def none(settings, trial):
    return weight(settings, trial, BEST)


def train(settings, trial):
    trial.report(1, {"test/x": globals()[settings["habit"]](settings, trial)})
