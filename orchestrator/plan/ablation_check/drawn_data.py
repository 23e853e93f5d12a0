"""Compare generated data, so that task settings with the same examples count as equal."""

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from orchestrator.identity import canonical
from orchestrator.plan.ablation_check.weights import SEED
from orchestrator.plan.training_code.settings import System
from trainables.acting import task_acting
from trainables.assembly import reads_steps
from trainables.data.split import content_hash
from trainables.settings import Settings
from trainables.task_catalog import (
    require_files,
    settled,
    source_digest,
    splits,
    stream,
    task_config,
    task_module,
    task_name,
    training_only,
)

STEPS = 200
"""Maximum number of evenly spread steps that are compared, in addition to the last ones."""
EXAMPLES = 2
KEPT = 64
MOST_MADE = 20_000
"""Maximum number of examples generated for a comparison, which takes some seconds."""


def acting_on_data(system: System, read: list[str]) -> dict[str, Any]:
    """Return the task fields that change one of the splits `read`, normalised to equal values if equivalent.

    A digest of the training examples replaces the fields that only affect training data.
    """
    counts = reads_steps(system.model)
    found = dict(task_acting(settled(system.task), read, counts_steps=counts))
    fields = training_only(system.task) & found.keys()
    if not fields or not any(info.streamed for info in splits(system.task)):
        return found
    drawn = _digest(canonical(system.settings["task"]), system.train.steps, counts)
    return {name: value for name, value in found.items() if name not in fields} | {"drawn": drawn}


def same_data(before: System, after: System, read: Sequence[str], most: int = MOST_MADE) -> bool:
    """Return whether two tasks have the same generated examples in all splits `read`.

    False for data that are not compared: streams, files, and more than `most` examples.
    """
    tasks = [before.task, after.task]
    if tasks[0].__class__ is not tasks[1].__class__ or not all(_is_stored(each, most) for each in tasks):
        return False
    names = [[info.name for info in splits(task) if info.name in read] for task in tasks]
    if names[0] != names[1] or len(names[0]) < len(read):
        return False
    one, other = (canonical(system.settings["task"]) for system in (before, after))
    try:
        return all(_built(one, name) == _built(other, name) for name in names[0])
    except ValueError:
        return False  # reported when the data are built for training


def _is_stored(task: Settings, most: int) -> bool:
    """Return whether all splits are stored, and are generated with at most `most` examples per split."""
    return not any(info.streamed for info in splits(task)) and _is_made(task, most)


def _is_made(task: Settings, most: int) -> bool:
    """Return whether the examples are generated, with at most `most` examples per split."""
    try:
        if source_digest(task_module(task_name(task)), task) is not None:
            return False
        require_files(task)
    except ValueError:
        return False
    values = settled(task).model_dump().items()
    counts = [value for name, value in values if type(value) is int and name != "data_seed"]
    return max(counts, default=0) <= most


@lru_cache(KEPT)
def _built(task: str, split: str) -> str:
    """Return a digest of the examples of `split`; `task` is JSON.

    Raises:
        ValueError: The examples cannot be built.
    """
    config = task_config(json.loads(task))
    return content_hash(task_module(task_name(config)).build(config, split))


@lru_cache(KEPT)
def _digest(task: str, steps: int, counts_steps: bool) -> str:
    """Return a digest of the training batches of a task.

    Args:
        task: Settings of the task as JSON.
        steps: Number of training steps.
        counts_steps: Whether to include the step counts of samples.
    """
    config, found = task_config(json.loads(task)), blake2b(digest_size=16)
    last = range(max(0, steps - 2), steps)
    for step in sorted({*range(0, steps, max(1, steps // STEPS)), *last}):
        batch = stream(config, EXAMPLES, SEED, step)
        for tensor in (batch.tokens, batch.mask, batch.labels, batch.steps if counts_steps else None):
            found.update(b"" if tensor is None else repr(tensor.tolist()).encode())
    return found.hexdigest()
