"""The synthetic inputs that systems are run on: made once, and copied for whoever runs."""

from functools import lru_cache

import torch

from orchestrator.plan.moved_weights import SEED
from trainables.data.synthetic import synthetic_batch
from trainables.types import Batch, TaskShape

EXAMPLES = 2
KEPT_BATCHES = 64
"""Synthetic batches that are kept."""


def made_batch(shape: TaskShape, length: int, examples: int = EXAMPLES) -> Batch:
    """So many examples of a task of `shape`, the longest of `length` tokens."""
    made = _kept(shape, length, examples)
    steps = None if made.steps is None else made.steps.clone()
    return Batch(made.tokens.clone(), made.mask.clone(), made.labels.clone(), steps)


@lru_cache(KEPT_BATCHES)
@torch.inference_mode(mode=False)
def _kept(shape: TaskShape, length: int, examples: int) -> Batch:
    return synthetic_batch(shape, examples, length, SEED)
