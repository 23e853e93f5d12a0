"""Every model fits small batches of tasks that it is made for, to the last answer."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from trainables import catalog, task_catalog
from trainables.assembly import build_model
from trainables.data.split import Split, content_hash
from trainables.testing import model_contract
from trainables.training.config import train_config
from trainables.training.step import Learner, run_step
from trainables.types import Batch, TaskShape

TASKS: dict[str, dict[str, Any]] = {
    "listops": {
        "trees": 2000,
        "depth_max": 4,
        "arguments_max": 3,
        "near_iid_examples": 100,
        "valid_examples": 50,
    },
    "flipflop": {"length": 64, "long_length": 66, "train_examples": 64},
    "logical_inference": {"pairs": 10_000, "test_pairs": 10_000},
    "algorithms": {"problem": "parity", "length_max": 8, "interval": 0},
    "algorithms.pause": {
        "problem": "copy",
        "length_max": 5,
        "interval": 0,
        "form": "next_token",
        "pause_tokens": 5,
    },
}
ATTENTION = {"heads": 4, "attention_dropout": 0.0}
CHUNKS = ATTENTION | {"chunk": {"size": 32}, "memory": {"slots": 4}}
STACK = {"heads": 4, "loops": 4, "recurrence": "unshared", "injection": False, "final_norm": "end"}
"""A stack of as many blocks as the loops, with separate weights."""
UT = {"gate": False, "halt": {"unit": "token", "transition": False}}


@dataclass(frozen=True)
class Case:
    """Settings of a model, and the task that it must learn by heart."""

    label: str
    task: str
    model: dict[str, Any] = field(default_factory=dict)
    steps: int = 200
    """Greatest number of optimiser steps; a few times as many as the model needs."""


MODELS: dict[str, tuple[Case, ...]] = {
    "crvnn": (Case("crvnn", "listops", {"cell_width": 64}),),
    "gutlb": (Case("gutlb.causal", "flipflop", CHUNKS | {"max_layers": 4, "causal": True}),),
    "looped": (
        Case("looped.parity", "algorithms", {"heads": 4}),
        Case("looped.ntp-pause", "algorithms.pause", STACK),
    ),
    "ndr": (Case("ndr", "listops", ATTENTION | {"layers": 4}),),
    "sut": (
        Case(
            "sut",
            "listops",
            {
                "max_layers": 4,
                "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 8, "window": 1},
                "feedforward": {"experts": 4, "active": 2, "width": 32},
            },
        ),
    ),
    "tlb": (Case("tlb.causal", "flipflop", CHUNKS | {"causal": True}),),
    "transformer": (
        Case("transformer", "listops", ATTENTION | {"layers": 2}),
        Case("transformer.pair", "logical_inference", ATTENTION | {"layers": 2}),
    ),
    "universal": (
        Case("gut.causal", "flipflop", ATTENTION | {"max_layers": 4, "causal": True, "pooling": "end"}),
        Case("ut", "listops", ATTENTION | UT | {"max_layers": 4, "pooling": "mean"}),
    ),
}
"""By model file: variants with sizes and steps at which each learns by heart, found by trial.

A model without an entry learns the small version of ListOps.
"""
EXAMPLES = 8


def small_settings(name: str) -> dict[str, Any]:
    """Return the settings of the small version of a model, without its width and its rates of dropout."""
    raw: dict[str, Any] = model_contract(name)().every_arm()["small"]
    sizes = raw.keys() - {"name", "width"}
    return {field: raw[field] for field in raw if field in sizes and not field.endswith("dropout")}


CASES = [
    # Quick test runs train one variant of every model.
    pytest.param(name, case, id=case.label, marks=() if case is cases[0] else pytest.mark.slow)
    for name in catalog.names("models")
    for cases in [MODELS.get(name) or (Case(name, "listops", small_settings(name)),)]
    for case in cases
]


@cache
def small_batch(task: str) -> tuple[Batch, TaskShape]:
    """Return the first training examples of a small form of the task."""
    name = task.partition(".")[0]
    config = task_catalog.task_config({"name": name} | TASKS[task])
    shape = task_catalog.shape(config)
    if next(split.streamed for split in task_catalog.splits(config) if split.role == "train"):
        return task_catalog.stream(config, EXAMPLES, seed=0, step=0), shape
    table = task_catalog.task_module(name).build(config, "train")
    return Split(table, shape.pad_id, content_hash(table)).batch(np.arange(EXAMPLES)), shape


@pytest.mark.parametrize(("name", "case"), CASES)
def test_model_fits_a_small_batch(name: str, case: Case) -> None:
    batch, shape = small_batch(case.task)
    config = catalog.load("models", name).Config
    no_dropout = {model_field: 0.0 for model_field in config.model_fields if model_field.endswith("dropout")}
    model = build_model({"name": name, "width": 32} | no_dropout | case.model, shape, seed=1)
    settings = {"steps": case.steps, "lr": 5e-3, "weight_decay": 0.0, "ponder_weight": 0.01}
    learner = Learner(model, train_config(settings), seed=1)
    for step in range(case.steps):
        result = run_step(learner, batch, step)
        if result.hits == result.counts:
            break
    assert result.hits == result.counts, (
        f"{int(result.hits)} of {int(result.counts)} after {case.steps} steps"
    )
