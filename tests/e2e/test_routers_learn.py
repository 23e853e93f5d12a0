"""The bridges between Transformers and recursive networks fit a small batch of ListOps to the last answer."""

from typing import Any

import numpy as np
import pytest

from trainables.assembly import build_model
from trainables.data.split import Split, content_hash
from trainables.tasks import listops
from trainables.training.config import train_config
from trainables.training.step import Learner, one_step

TASK = {"trees": 2000, "depth_max": 4, "arguments_max": 3, "near_iid_examples": 100, "valid_examples": 50}
EXAMPLES, STEPS = 16, 150
SYSTEMS: dict[str, dict[str, Any]] = {
    "ndr": {"name": "ndr", "width": 32, "heads": 4, "layers": 4, "attention_dropout": 0.0},
    "crvnn": {"name": "crvnn", "width": 32, "cell_width": 64},
    "crvnn.penalised": {
        "name": "crvnn",
        "width": 32,
        "cell_width": 64,
        "transition_features": 8,
        "halt": {"threshold": 0.01, "penalty": True},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_small_batch_is_learnt_by_heart(system: str) -> None:
    config = listops.Config.model_validate(TASK)
    table = listops.build(config, "train")
    shape = listops.shape(config)
    batch = Split(table, shape.pad_id, content_hash(table)).batch(np.arange(EXAMPLES))
    settings = {"steps": STEPS, "batch_size": EXAMPLES, "lr": 3e-3, "weight_decay": 0.0}
    learner = Learner(
        build_model(SYSTEMS[system] | {"dropout": 0.0}, shape, seed=1), train_config(settings), seed=1
    )
    for step in range(STEPS):
        result = one_step(learner, batch, step)
        if result.hits == EXAMPLES:
            break
    assert result.hits == EXAMPLES, f"{int(result.hits)} of {EXAMPLES} after {STEPS} steps"
