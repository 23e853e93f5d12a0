"""Whether the code of training does what its settings say, by short trainings of a tiny model.

Where a field acts is declared beside it (`trainables.acting`); that it does act is seen here: two trainings
that differ in nothing else must differ in what is learned or measured, those of decoding on a task whose
answers are written. Which values are tried is declared too (`Tried`), so the answer is the same for every
trial, and costs one training a value.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import torch

from trainables.acting import Tried, tried
from trainables.data.split import Split, content_hash
from trainables.decoding.config import DecodeConfig
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


class Rehearsals:
    """Short trainings, each made once."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._acting: dict[str, bool] = {}

    def acts(self, field: str) -> bool:
        """Whether another value of the `field` of training changes what is learned or measured.

        True for fields that do not say how to find out.
        """
        if field not in self._acting:
            mark = tried(TrainConfig, field)
            self._acting[field] = mark is None or len({self._trained(field, each, mark) for each in mark}) > 1
        return self._acting[field]

    def _trained(self, field: str, value: Any, mark: Tried) -> tuple[Any, ...]:
        task = WRITTEN if field in DecodeConfig.model_fields else TASK
        settings = TRAIN | mark.beside | {field: value}
        config = TrainConfig.model_validate(settings).model_dump(mode="json")
        key = json.dumps([task["name"], config], sort_keys=True)
        if key not in self._seen:
            self._seen[key] = _measured(task, config)
        return self._seen[key]


def _measured(task: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Any, ...]:
    """All that a training measured, report by report."""
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
        return _made(task_name(self._task), self._names.get(split, split))


@cache
def _made(name: str, split: str) -> Split:
    task: Settings = task_config(WRITTEN if name == WRITTEN["name"] else TASK)
    table, needed = task_module(name).build(task, split), shape(task)
    return Split(table, needed.pad_id, content_hash(table), needed.end_id)
