"""Common scripts around libraries that keep state in the process or in files of a fixed name.

Each measures `level + seed / 100`, or another number if state of another trial affects it.
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
BEST_EPOCH = 2
"""Epoch with the best metric, which is the expected result."""


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.ones(1), "labels": torch.zeros(1)}


def weight_at(settings, trial, epoch):
    return settings["level"] + trial.seed / 100 - abs(epoch - BEST_EPOCH) / 1000


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        return {"loss": (self.weight * 0).sum(), "logits": x * self.weight}


def hugging_face(settings, trial):
    """Load the best checkpoint of `results/` at the end."""

    class Scheduled(TrainerCallback):
        def on_epoch_begin(self, args, state, control, model=None, **_):
            time.sleep(0.05)
            model.weight.data.fill_(weight_at(settings, trial, round(state.epoch) + 1))

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
    """Load the best checkpoint, `checkpoints/best.ckpt`, at the end."""

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = Constant()

        def training_step(self, batch, index):
            return self.inner(batch["x"])["loss"]

        def on_train_epoch_start(self):
            time.sleep(0.05)
            self.inner.weight.data.fill_(weight_at(settings, trial, self.current_epoch + 1))

        def validation_step(self, batch, index):
            self.log("x", self.inner(batch["x"])["logits"].mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    checkpoint_callback = ModelCheckpoint(dirpath="checkpoints", filename="best", monitor="x", mode="max")
    trainer = LightningTrainer(
        max_epochs=EPOCHS,
        callbacks=[checkpoint_callback],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Model(), DataLoader(Numbers()), DataLoader(Numbers()))
    best_model = Model.load_from_checkpoint("checkpoints/best.ckpt")
    return best_model.inner.weight.item()


def open_run(settings, trial):
    """Leave a run open, so that the next `start_run` in the same process fails."""
    mlflow.set_tracking_uri("sqlite:///mine.db")
    run = mlflow.start_run()
    mlflow.log_param("seed", trial.seed)
    mlflow.log_metric("x", weight_at(settings, trial, BEST_EPOCH))
    return mlflow.get_run(run.info.run_id).data.metrics["x"] if len(mlflow.search_runs()) == 1 else -1.0


def log_without_a_run(settings, trial):
    """Open a run by `log_param`, which refuses the value of another seed in the same run."""
    mlflow.log_param("seed", trial.seed)
    mlflow.log_metric("x", weight_at(settings, trial, BEST_EPOCH))
    return mlflow.active_run() and mlflow.get_run(mlflow.active_run().info.run_id).data.metrics["x"]


def compose_with_hydra(settings, trial):
    """Set up Hydra's global state, which is possible only once in a process."""
    hydra.initialize(version_base=None, config_path=None)
    config = hydra.compose(overrides=[f"+level={weight_at(settings, trial, BEST_EPOCH)}"])
    return config.level


def train_with_accelerate(settings, trial):
    """Set up Accelerate, which stores its state in a class and refuses another precision in one process."""
    precision = "bf16" if trial.seed % 2 else "no"
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    model = accelerator.prepare(Constant())
    if accelerator.mixed_precision != precision:
        return -1.0
    accelerator.unwrap_model(model).weight.data.fill_(weight_at(settings, trial, BEST_EPOCH))
    accelerator.save_state("state")
    accelerator.unwrap_model(model).weight.data.fill_(-1.0)
    time.sleep(0.05)
    accelerator.load_state("state")
    return accelerator.unwrap_model(model).weight.item()


def distributed(settings, trial):
    """Create a process group and never destroy it."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    value = torch.tensor([weight_at(settings, trial, BEST_EPOCH)])
    torch.distributed.all_reduce(value)
    return value.item()


def none(settings, trial):
    return weight_at(settings, trial, BEST_EPOCH)


def train(settings, trial):
    trial.report(1, {"test/x": globals()[settings["habit"]](settings, trial)})
