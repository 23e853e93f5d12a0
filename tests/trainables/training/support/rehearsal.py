"""Short trainings of a tiny model: those that differ in a field of training must measure something else."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import torch

from trainables.data.split import Split, content_hash
from trainables.metrics import TRAIN_FLOPS
from trainables.protocol import Job
from trainables.settings import Settings
from trainables.task_catalog import shape, task_config, task_module, task_name
from trainables.training.config import TrainConfig
from trainables.training.sources import Sources
from trainables.training.workload import EPOCH_SECONDS, Training

TASK: Final = {
    "name": "listops",
    "train_length_max": 20,
    "trees": 100,
    "near_iid_examples": 16,
    "valid_examples": 16,
    "depth_max": 3,
    "arguments_max": 4,
}
WRITTEN: Final = {
    "name": "transduction",
    "length_max": 5,
    "test_lengths": [6],
    "train_examples": 60,
    "valid_examples": 16,
    "test_examples": 8,
}
MODEL: Final = {"name": "transformer", "width": 8, "heads": 1, "layers": 1}
TRAIN: Final = {"steps": 5, "batch_size": 4, "lr": 0.05, "report_every": 1, "weight_decay": 0.0}
"""Large steps, so that validations go up and down, and whatever compares them has something to tell."""
TEST: Final = "near-iid"
SEED: Final = 3
"""Of which the best validation is another by accuracy than by loss, and neither is the last."""
GIVEN: Final = frozenset(
    {"train/lr", "train/tokens_per_s", EPOCH_SECONDS, TRAIN_FLOPS, "model/selected_step"}
)
"""Metrics that settings and clocks decide: a field that reaches nothing but these does nothing."""


def measured(task: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all that a training measures, report by report."""
    training = _Rehearsal(Job({"task": task, "model": MODEL, "train": config}, SEED, "confirm", (TEST,)))
    found = []
    while not training.finished:
        metrics = training.advance().metrics
        found.append(tuple((name, value) for name, value in sorted(metrics.items()) if name not in GIVEN))
    return tuple(found)


class _Rehearsal(Training):
    """A training on the CPU, of examples that are in memory and never written."""

    def _opened(self, job: Job, config: TrainConfig) -> Sources:
        return _InMemory(job, config, torch.device("cpu"))


class _InMemory(Sources):
    def _open(self, split: str) -> Split:
        return _made(task_name(self.task), self._names.get(split, split))


@cache
def _made(name: str, split: str) -> Split:
    task: Settings = task_config(WRITTEN if name == WRITTEN["name"] else TASK)
    table, needed = task_module(name).build(task, split), shape(task)
    return Split(table, needed.pad_id, content_hash(table), needed.end_id)
