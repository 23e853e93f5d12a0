"""What a streamed task trains on: settings that draw the same in a whole training are one setting."""

import json
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from orchestrator.identity import canonical
from orchestrator.plan.moved_weights import SEED
from orchestrator.plan.settings import System
from trainables.acting import task_acting
from trainables.task_catalog import settled, splits, stream, task_config, training_only

STEPS = 200
"""Of a longer training so many are looked at, evenly spread, and its last ones."""
EXAMPLES = 2
KEPT = 64


def acting_on_data(system: System, read: list[str]) -> dict[str, Any]:
    """The task's fields that change one of the splits `read`, as values that do the same.

    Fields that change nothing but what is drawn for training stand in it as a digest of that.
    """
    found = dict(task_acting(settled(system.task), read))
    fields = training_only(system.task) & found.keys()
    if not fields or not any(info.streamed for info in splits(system.task)):
        return found
    drawn = _digest(canonical(system.settings["task"]), system.train.steps)
    return {name: value for name, value in found.items() if name not in fields} | {"drawn": drawn}


@lru_cache(KEPT)
def _digest(task: str, steps: int) -> str:
    """Of what the first to the last of `steps` batches may hold, for the task given as JSON."""
    config, found = task_config(json.loads(task)), blake2b(digest_size=16)
    last = range(max(0, steps - 2), steps)
    for step in sorted({*range(0, steps, max(1, steps // STEPS)), *last}):
        batch = stream(config, EXAMPLES, SEED, step)
        for tensor in (batch.tokens, batch.mask, batch.labels, batch.steps):
            found.update(b"" if tensor is None else repr(tensor.tolist()).encode())
    return found.hexdigest()
