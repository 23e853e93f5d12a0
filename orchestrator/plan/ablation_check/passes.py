"""Run one pass of a model over synthetic examples and measure it.

Examples are the same for all models of a task. Two passes of one model agree up to the order of summation.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from math import isclose, sqrt

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from orchestrator.plan.ablation_check.weights import SEED, TestedWeights, perturb
from orchestrator.plan.training_code.settings import ParsedSettings
from trainables.assembly import convert_model_errors
from trainables.counting import only_counted_kernels
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.layers.global_generator import evaluation_stream
from trainables.threads import cpu_threads
from trainables.training.step import objective
from trainables.types import Batch, Output

TRAINING_LENGTH = 8
"""Tokens of the longer of two short examples; wide and deep models take a fraction of a second."""
EVALUATION_LENGTH = 64
EXAMPLES = 2
ROUNDING_TOLERANCE = 1e-4
"""Relative difference of losses and gradients that the order of summation can cause."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Settings of one pass: weights, number and maximum length of examples, training or evaluation."""

    point: TestedWeights
    length: int
    examples: int = EXAMPLES
    trains: bool = False
    """Whether to apply dropout and compute the training loss and its gradient; otherwise the model is
    evaluated."""


Gradient = Mapping[str, tuple[float, float]]
"""Norm and sum of the gradient by parameter; parameters without a gradient are left out."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Results of one pass."""

    quantities: Mapping[str, tuple[float, ...]]
    """Values by name: `loss` (training loss, then loss by example), `costs` (ponder and auxiliary cost,
    weighted), `layers run` (computed, then retained layers by example), `outputs` (losses, hits and ponder
    costs by example)."""
    gradient: Gradient | None = None

    @property
    def loss(self) -> float:
        """Return the loss that training minimises."""
        return self.quantities["loss"][0]

    @property
    def norm(self) -> float:
        """Return the norm of the full gradient."""
        return sqrt(sum(norm**2 for norm, _ in (self.gradient or {}).values()))

    def different_quantities(self, second: "Measurements") -> tuple[str, ...]:
        """Return the names of the quantities that differ from `second` by more than rounding.

        `costs` is included only if neither the loss nor the gradient differs, because the costs are a small
        part of the loss.
        """
        own, others = self.quantities, second.quantities
        names = [name for name in own if not _are_close(name, own[name], others[name])]
        if not self._has_equal_gradient(second):
            names.insert(1 if "loss" in names else 0, "gradient")
        is_small = "loss" not in names and "gradient" not in names
        return tuple(name for name in names if name != "costs" or is_small)

    def _has_equal_gradient(self, second: "Measurements") -> bool:
        own_gradient, other_gradient = self.gradient or {}, second.gradient or {}
        limit = ROUNDING_TOLERANCE * max(self.norm, second.norm)
        return own_gradient.keys() == other_gradient.keys() and all(
            abs(own_value - other_value) <= limit
            for name in own_gradient
            for own_value, other_value in zip(own_gradient[name], other_gradient[name], strict=True)
        )


def _are_close(name: str, first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    tolerance = 0.0 if name == "layers run" else ROUNDING_TOLERANCE
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(isclose(*pair, rel_tol=tolerance) for pair in pairs)


def measure(system: ParsedSettings, model: nn.Module, requested_pass: Pass, longest: int) -> Measurements:
    """Run a model once and measure it.

    Args:
        system: Settings that the model was built from.
        model: The model with its initial weights; its weights are moved.
        requested_pass: Settings of the pass.
        longest: Maximum number of tokens per input.

    Returns:
        The results of the pass.

    Raises:
        ValueError: The model cannot be run.
    """
    length = min(requested_pass.length, longest)
    batch = synthetic_batch(system.shape, requested_pass.examples, length, SEED)
    trains = requested_pass.trains
    with cpu_threads(1):  # one thread gives the same sums on every machine
        output = run(system, model, requested_pass.point, batch, trains=trains)
        encoded = output.encoded
        layers = {"layers run": (*_numbers(encoded.computed), *_numbers(encoded.depth))}
        if not trains:
            measured_numbers = (*_numbers(output.loss), *_numbers(output.hits), *_numbers(encoded.ponder))
            return Measurements({"outputs": measured_numbers, **layers})
        loss = objective(output, system.train)
        auxiliary = 0.0 if encoded.auxiliary is None else float(encoded.auxiliary.detach().mean())
        ponder = system.train.ponder_weight * float(encoded.ponder.detach().mean())
        costs = (ponder, system.train.auxiliary_weight * auxiliary)
        losses = (float(loss.detach()), *_numbers(output.loss))
        return Measurements({"loss": losses, "costs": costs, **layers}, _gradient(model, loss))


def run(
    system: ParsedSettings, model: nn.Module, point: TestedWeights, batch: Batch, *, trains: bool
) -> Output:
    """Return the output of `model` for `batch` at the weights `point`, with gradients if it trains.

    Raises:
        ValueError: The model cannot be run.
    """
    model.train(trains)
    perturb(model, point)
    set_dropout_context(model, SEED, 0)
    random_numbers = nullcontext() if trains else evaluation_stream(model, SEED)
    with torch.set_grad_enabled(trains), convert_model_errors(system.model, "run on a batch"), random_numbers:
        output = model(batch)
    assert isinstance(output, Output)
    return output


def count_flops(system: ParsedSettings, model: nn.Module, point: TestedWeights) -> int:
    """Return the FLOPs of one evaluation, without fused CPU kernels, which cannot be counted."""
    with cpu_threads(1), only_counted_kernels(), FlopCounterMode(display=False) as counter:
        run(system, model, point, example_batch(system, EVALUATION_LENGTH), trains=False)
    return int(counter.get_total_flops())


def example_batch(system: ParsedSettings, length: int = TRAINING_LENGTH) -> Batch:
    """Return two examples of at most `length` tokens, and at most the maximum training length."""
    return synthetic_batch(system.shape, EXAMPLES, min(length, system.shape.length_max), SEED)


def _numbers(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(values.detach().tolist())


def _gradient(model: nn.Module, loss: torch.Tensor) -> Gradient:
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise ValueError("the model must have weights that are trained, got none")
    grads = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
    norms = {
        name: (float(torch.linalg.vector_norm(grad)), float(grad.sum()))
        for name, grad in zip(weights, grads, strict=True)
        if grad is not None
    }
    return {name: sums for name, sums in norms.items() if any(sums)}
