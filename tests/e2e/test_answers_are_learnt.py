"""Encoders with decoders learn to reverse sequences and to infer relations, measured on decoded answers."""

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
from trainables.training.step import Learner, run_step
from trainables.training.writing import reference_answers
from trainables.types import NOT_ASKED, Batch, TaskShape

EXAMPLES, STEPS, CHECK_EVERY = 12, 250, 40
MODELS: dict[str, dict[str, Any]] = {
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
    MODELS["sut"] = {
        "name": "sut",
        "width": 32,
        "max_layers": 3,
        "gating_dropout": 0.0,
        "attention": {"experts": 4, "active": 2, "heads": 2, "head_width": 16, "window": 8},
        "feedforward": {"experts": 4, "active": 2, "width": 32},
    }


def reversal_task() -> tuple[TaskShape, Batch]:
    """Return a batch whose answers are the reversed inputs, in a shared vocabulary."""
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


def relations_task() -> tuple[TaskShape, Batch]:
    config = task_catalog.task_config(SMALL | {"form": "sequence"})
    table, shape = logical_inference.build(config, "operators-1"), logical_inference.shape(config)
    split = Split(table, shape.pad_id, content_hash(table), shape.end_id)
    return shape, split.batch(np.arange(EXAMPLES))


CASES = [("transformer", relations_task)]
CASES += [(name, relations_task if name == "ut" else reversal_task) for name in MODELS]
"""Every model learns one task, and the Transformer both."""


@pytest.mark.slow
@pytest.mark.parametrize(("model_name", "task"), CASES)
def test_model_fits_a_small_batch_of_answers(model_name: str, task: Any) -> None:
    shape, batch = task()
    raw = MODELS[model_name] | {"dropout": 0.0}
    fields = catalog.load("models", raw["name"]).Config.model_fields
    raw |= {"attention_dropout": 0.0} if "attention_dropout" in fields else {}
    train = {"steps": STEPS, "lr": 3e-3, "weight_decay": 0.0, "ponder_weight": 0.01}
    learner = Learner(build_model(raw, shape, seed=1), train_config(train), seed=1)
    # Beam search may still find a likelier wrong answer when greedy decoding is right.
    decoding_configs = [train_config(train | {"beam_size": size, "length_penalty": 0.4}) for size in (1, 4)]
    right_tokens = reference_answers(batch)
    decoded: list[list[list[int]]] = []
    for step in range(STEPS):
        run_step(learner, batch, step)
        if (step + 1) % CHECK_EVERY == 0:
            learner.model.eval()
            decoded = [answers(learner.model, batch, decoding_config) for decoding_config in decoding_configs]
            learner.model.train()
            if decoded == [right_tokens, right_tokens]:
                break
    assert decoded == [right_tokens, right_tokens]
