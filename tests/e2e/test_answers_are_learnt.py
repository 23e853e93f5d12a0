"""Encoders with decoders learn to reverse and to relate, to the last token of decoded answers."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.oracles.solvers.logical_inference_solver import SMALL
from trainables import catalog, task_catalog
from trainables.assembly import build_model
from trainables.data.split import Split, content_hash
from trainables.decoding.search import answers
from trainables.tasks import logical_inference
from trainables.training.config import train_config
from trainables.training.step import Learner, one_step
from trainables.training.writing import right_answers
from trainables.types import NOT_ASKED, Batch, TaskShape

EXAMPLES, STEPS, CHECK_EVERY = 12, 250, 40
SYSTEMS: dict[str, dict[str, Any]] = {
    "transformer": {"name": "transformer", "width": 32, "heads": 4, "layers": 2},
    "transformer.tied": {"name": "transformer", "width": 32, "heads": 4, "layers": 2, "tied_output": True},
    "ut": {
        "name": "universal",
        "width": 32,
        "heads": 4,
        "max_layers": 4,
        "gate": False,
        "halt": {"unit": "token", "transition": False},
    },
}
if "sut" in catalog.names("models"):
    SYSTEMS["sut"] = {
        "name": "sut",
        "width": 32,
        "max_layers": 3,
        "gating_dropout": 0.0,
        "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 16, "window": 8},
        "feedforward": {"experts": 4, "active": 2, "width": 32},
    }


def reversal() -> tuple[TaskShape, Batch]:
    """Each answer is its input backwards, in the same words."""
    shape = TaskShape(
        "sequence", 8, 8, pad_id=7, length_max=6, end_id=6, answer_length_max=7, shared_vocabulary=True
    )
    stream = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 7, (EXAMPLES,), generator=stream)
    tokens = torch.full((EXAMPLES, 6), shape.pad_id)
    labels = torch.full((EXAMPLES, 7), NOT_ASKED)
    for row, length in enumerate(lengths.tolist()):
        words = torch.randint(0, 6, (length,), generator=stream)
        tokens[row, :length] = words
        labels[row, : length + 1] = torch.cat((words.flip(0), torch.tensor([shape.end_id])))
    return shape, Batch(tokens, tokens != shape.pad_id, labels)


def relations() -> tuple[TaskShape, Batch]:
    config = task_catalog.task_config(SMALL | {"form": "sequence"})
    table, shape = logical_inference.build(config, "operators-1"), logical_inference.shape(config)
    split = Split(table, shape.pad_id, content_hash(table), shape.end_id)
    return shape, split.batch(np.arange(EXAMPLES))


@pytest.mark.slow
@pytest.mark.parametrize("task", [reversal, relations])
@pytest.mark.parametrize("system", SYSTEMS)
def test_models_fit_a_small_batch_of_answers(system: str, task: Any) -> None:
    shape, batch = task()
    raw = SYSTEMS[system] | {"dropout": 0.0}
    fields = catalog.load("models", raw["name"]).Config.model_fields
    raw |= {"attention_dropout": 0.0} if "attention_dropout" in fields else {}
    train = {"steps": STEPS, "lr": 3e-3, "weight_decay": 0.0, "ponder_weight": 0.01}
    learner = Learner(build_model(raw, shape, seed=1), train_config(train), seed=1)
    # What greedy decoding just gets right, beam search may yet find a likelier answer than.
    ways = [train_config(train | {"beam_size": size, "length_penalty": 0.4}) for size in (1, 4)]
    right = right_answers(batch)
    found: list[list[list[int]]] = []
    for step in range(STEPS):
        one_step(learner, batch, step)
        if (step + 1) % CHECK_EVERY == 0:
            learner.model.eval()
            found = [answers(learner.model, batch, way) for way in ways]
            learner.model.train()
            if found == [right, right]:
                break
    assert found == [right, right]
