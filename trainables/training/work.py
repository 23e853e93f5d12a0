"""Compute FLOPs of a trial's training and evaluation, by the formulas of a plan's cost estimate.

Each multiply-add of a matrix product counts as two FLOPs; other operations are not counted
(`layers.block_costs`). FLOPs of training assume that all inputs have the greatest length and that nothing
halts, as the cost estimate of a plan does. FLOPs of an evaluation use the actual lengths of the samples and
the number of executed layers.
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
        given="is fixed by the number of steps and the sizes; limit it with budget.flops",
    ),
)


class FlopsCalculator:
    """Cost of training steps and evaluations of a model on a task, in FLOPs."""

    def __init__(self, model: Settings, shape: TaskShape, train: TrainConfig) -> None:
        longest = max(shape.length_max, shape.answer_length_max or 0)
        self._model, self._shape = model, shape
        self._rows = train.batch_rows(longest)
        self._passes = passes(recomputes=train.checkpoint_activations)

    @property
    def step_flops(self) -> float:
        """Return the maximum number of FLOPs of an optimiser step."""
        length = self._shape.length_max
        return self._passes * self._rows * flops(self._model, self._shape, length, self._most_layers(length))

    def sample_flops(self, lengths: np.ndarray, shares: np.ndarray) -> float:
        """Return the FLOPs of a forward pass on one sample, averaged over samples.

        FLOPs are assumed to be linear in the number of layers.

        Args:
            lengths: Tokens of each sample, shape (N).
            shares: Executed layers of each sample as a share of its layers without halting, shape (N).
        """

        @cache
        def flops_bounds(length: int) -> tuple[float, float]:
            most_layers = bound_layers(self._model, length)
            flops_of_one, flops_of_two = (
                flops(self._model, self._shape, length, layers) for layers in (1, 2)
            )
            return flops_of_one - (flops_of_two - flops_of_one), (flops_of_two - flops_of_one) * most_layers

        constant_flops, flops_of_layers = np.array([flops_bounds(int(length)) for length in lengths]).T
        return float(np.mean(constant_flops + flops_of_layers * shares))

    def _most_layers(self, length: int) -> int:
        return depth_range(self._model, length)[1]
