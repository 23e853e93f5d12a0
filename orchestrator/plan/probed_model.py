"""What a model makes of synthetic examples at some weights: one pass forwards, one back, one evaluation.

Examples are made once, and copied for whoever runs. Two passes are the same up to the order of their sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isclose
from typing import Any, cast

import torch
from torch import Tensor, nn

from orchestrator.plan.moved_weights import SEED, move
from orchestrator.plan.settings import System
from trainables.assembly import as_fault
from trainables.counting import Flops, only_counted_kernels
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.layers.plain import evaluation_stream
from trainables.threads import cpu_threads
from trainables.training.config import TrainConfig
from trainables.training.step import objective
from trainables.types import Batch, Output, TaskShape

LENGTH = 8
"""Tokens of the longer example: short, so that a wide and deep model still takes a fraction of a second."""
READ_LENGTH = 64
"""The same where nothing is learnt: long enough for windows and chunks to matter."""
EXAMPLES = 2
KEPT_BATCHES = 64
"""Synthetic batches that are kept."""
ROUNDING = 1e-4
"""Relative difference up to which losses and gradients may be the same sums in another order."""


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What one forward pass gave."""

    loss: float
    """Everything that is minimised: main loss and weighted ponder cost."""
    layers: tuple[float, ...]
    """Layers kept and layers run of every example."""
    costs: tuple[float, float]
    """Ponder cost and auxiliary cost, weighted: perhaps too little of the loss to be seen beside rounding."""
    objective_reads: frozenset[str]
    """Fields of the training settings that the loss depends on."""


@dataclass(frozen=True, slots=True)
class BackwardPass:
    """What one backward pass gave."""

    norm: float
    parts: tuple[tuple[str, float, float], ...]
    """Norm and sum of the gradient of every parameter."""

    def in_order(self) -> "BackwardPass":
        """The same, parameters in the order of their names."""
        return BackwardPass(self.norm, tuple(sorted(self.parts)))


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """What a model made of the two examples."""

    weights: Mapping[str, nn.Parameter]
    output: Output

    @classmethod
    def of(cls, system: System, model: nn.Module, point: int, length: int = LENGTH) -> "ProbedModel":
        """One forward pass in training mode at weights `point`, inputs of at most `length` tokens."""
        # One thread: sums are then the same on every machine, and work this small is no faster on more.
        with cpu_threads(1):
            move(model, point)
            set_dropout_context(model, SEED, 0)
            with as_fault(system.model, "run on a batch"):
                output = model(batch_of(system, length))
        assert isinstance(output, Output)
        return cls(dict(model.named_parameters()), output)

    @classmethod
    def read(
        cls, system: System, model: nn.Module, point: int, batch: Batch, dropping: bool = False
    ) -> tuple[float, ...]:
        """What evaluating the model gives, example by example; `dropping` as in training."""
        with cpu_threads(1), torch.inference_mode():
            model.train(dropping)
            move(model, point)
            set_dropout_context(model, SEED, 0)
            with as_fault(system.model, "run on a batch"), evaluation_stream(model, SEED):
                output = model(batch)
        encoded = output.encoded
        quantities = (output.loss, output.hits, encoded.depth, encoded.computed, encoded.ponder)
        return tuple(value for each in quantities for value in each.tolist())

    @property
    def layers(self) -> tuple[float, ...]:
        """Layers kept of every example, then layers run."""
        encoded = self.output.encoded
        return (*encoded.depth.tolist(), *encoded.computed.tolist())

    @property
    def idle_weights(self) -> frozenset[str]:
        """Training settings that weigh a cost without a gradient."""
        encoded = self.output.encoded
        costs = {"ponder_weight": encoded.ponder, "auxiliary_weight": encoded.auxiliary}
        return frozenset(name for name, each in costs.items() if each is None or not each.requires_grad)

    def costs(self, train: TrainConfig) -> tuple[float, float]:
        """Ponder cost and auxiliary cost, weighted."""
        encoded = self.output.encoded
        auxiliary = 0.0 if encoded.auxiliary is None else float(encoded.auxiliary.detach().mean())
        return train.ponder_weight * float(encoded.ponder.detach().mean()), train.auxiliary_weight * auxiliary

    def minimised(self, train: TrainConfig) -> tuple[Tensor, ForwardPass]:
        """The loss, to be led back from, and what the pass gave."""
        watched = Watched(train)
        loss = objective(self.output, cast(TrainConfig, watched))
        read = frozenset(watched.read)
        return loss, ForwardPass(float(loss.detach()), self.layers, self.costs(train), read)

    def gradient(self, loss: Tensor) -> BackwardPass:
        """The backward pass from `loss`; there can be others after it."""
        names, weights = zip(*self.weights.items(), strict=True)
        with cpu_threads(1):
            grads = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            parts = tuple(
                (name, float(torch.linalg.vector_norm(grad)), float(grad.sum()))
                for name, grad in zip(names, grads, strict=True)
                if grad is not None
            )
        return BackwardPass(sum(norm**2 for _, norm, _ in parts) ** 0.5, parts)


def counted(system: System, model: nn.Module, point: int) -> int:
    """FLOPs of one evaluation, the fused kernels of a CPU left out, of which the counter knows nothing."""
    with cpu_threads(1):
        model.eval()
        move(model, point)
        with (
            as_fault(system.model, "run on a batch"),
            only_counted_kernels(),
            Flops() as operations,
        ):
            model(batch_of(system, READ_LENGTH))
    return int(operations.total)


def batch_of(system: System, length: int = LENGTH) -> Batch:
    """The two examples, of at most `length` tokens and no more than are trained on."""
    return made_batch(system.shape, min(length, system.shape.length_max))


class Watched:
    """Training settings that remember which of their fields were read."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._config, name)


def made_batch(shape: TaskShape, length: int, examples: int = EXAMPLES) -> Batch:
    """So many examples of a task of `shape`, the longest of `length` tokens."""
    made = _kept(shape, length, examples)
    steps = None if made.steps is None else made.steps.clone()
    return Batch(made.tokens.clone(), made.mask.clone(), made.labels.clone(), steps)


@lru_cache(KEPT_BATCHES)
@torch.inference_mode(mode=False)
def _kept(shape: TaskShape, length: int, examples: int) -> Batch:
    return synthetic_batch(shape, examples, length, SEED)


def close(before: float, after: float) -> bool:
    """Whether two losses, costs or measured values differ by no more than `ROUNDING`."""
    return isclose(before, after, rel_tol=ROUNDING)


def same_gradient(before: BackwardPass, after: BackwardPass) -> bool:
    """Whether two gradients differ by no more than the order of sums explains."""
    reached, also = ([each for each in one.parts if any(each[1:])] for one in (before, after))
    if [name for name, *_ in reached] != [name for name, *_ in also]:
        return False
    limit = ROUNDING * max(before.norm, after.norm)
    pairs = zip(reached, also, strict=True)
    return all(
        abs(old - new) <= limit
        for (_, *one), (_, *other) in pairs
        for old, new in zip(one, other, strict=True)
    )
