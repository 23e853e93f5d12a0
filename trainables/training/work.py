"""FLOPs of a trial's training and evaluation, by the formulas that a plan prices it with.

Two for each multiply-add of a matrix product and nothing else (`layers.block_costs`). Those of training take
all inputs to be as long as the task's longest and nothing to halt, as the price of a plan does; those of
an evaluation are of the samples' own lengths and of the layers that were run on each.
"""

from functools import cache

import numpy as np

from trainables.costs import bound_layers, depth_range, flops, passes
from trainables.metrics import Metric
from trainables.settings import Settings
from trainables.training.config import TrainConfig
from trainables.types import TaskShape

metrics = (
    Metric("flops", unit="FLOPs", low=0.0, shown=(), is_cost=True, moves_with="saved"),
    Metric(
        "flops",
        unit="FLOPs",
        low=0.0,
        split="train",
        shown=(),
        given="steps and sizes decide: limit it with budget.flops",
    ),
)


class Work:
    """What one step of training and the evaluation of samples cost a model on a task."""

    def __init__(self, model: Settings, shape: TaskShape, train: TrainConfig) -> None:
        longest = max(shape.length_max, shape.answer_length_max or 0)
        self._model, self._shape = model, shape
        self._rows = train.batch_rows(longest)
        self._passes = passes(recomputes=train.checkpoint_activations)

    @property
    def step(self) -> float:
        """FLOPs of an optimiser step at most."""
        length = self._shape.length_max
        return self._passes * self._rows * flops(self._model, self._shape, length, self._most(length))

    def samples(self, lengths: np.ndarray, shares: np.ndarray) -> float:
        """Mean FLOPs of a forward pass on one sample.

        `lengths` (N): tokens of each; `shares` (N): which share of the layers it costs without halting were
        run on it. FLOPs grow evenly with the layers.
        """

        @cache
        def ends(length: int) -> tuple[float, float]:
            most = bound_layers(self._model, length)
            one, two = (flops(self._model, self._shape, length, layers) for layers in (1, 2))
            return one - (two - one), (two - one) * most

        fixed, moving = np.array([ends(int(length)) for length in lengths]).T
        return float(np.mean(fixed + moving * shares))

    def _most(self, length: int) -> int:
        return depth_range(self._model, length)[1]
