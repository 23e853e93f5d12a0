"""Builds systems and runs them once on two synthetic examples, to see what a change of settings changes.

Two systems that differ only in what has no effect agree in every bit: initial weights and dropout come from
streams named after modules, so nothing but the change itself can make a difference. At their initial weights
two systems may agree although they can differ (two thresholds that are both reached by the same layer), so
there are further points to look at: biases moved at random, and single numbers, like the bias of a halting
probability, far up and far down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import torch
from torch import nn

from orchestrator.identity import canonical
from orchestrator.plan.settings import System
from trainables.assembly import build_model
from trainables.costs import depth_range, flops
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.streams import torch_stream
from trainables.training.config import TrainConfig
from trainables.training.step import objective
from trainables.types import Output

SEED = 0
EXAMPLES = 2
LENGTH = 8
"""Tokens of the longer example: short, so that a wide and deep model still takes a fraction of a second."""
POINTS = 3
"""Weights under which two systems are compared: the initial ones, and two moved away from them."""
_FAR = 4.0
_NOISE = 0.5


@dataclass(frozen=True, slots=True)
class Structure:
    """What a system is, seen without allocating it."""

    modules: Mapping[str, str]
    """Class name by qualified module name."""
    shapes: Mapping[str, tuple[int, ...]]
    """By qualified parameter name."""
    parameters: int
    depth_min: int
    depth_max: int
    flops_min: float
    """Forward FLOPs of one sequence of the longest training length at the least depth."""
    flops_max: float


@dataclass(frozen=True, slots=True)
class Trace:
    """What one forward and backward pass gave."""

    loss: float
    """Everything that is minimised: main loss and weighted ponder cost."""
    gradient_norm: float
    gradients: tuple[tuple[str, float, float], ...]
    """Norm and sum of the gradient of every parameter."""
    layers: tuple[float, ...]
    """Layers kept and layers run of every example."""
    objective_reads: frozenset[str]
    """Fields of the training settings that the loss depends on."""

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are numbers."""
        return isfinite(self.loss) and isfinite(self.gradient_norm)


class Bench:
    """Builds and runs systems, each at most once."""

    def __init__(self) -> None:
        self._structures: dict[str, Structure] = {}
        self._traces: dict[tuple[str, int], Trace] = {}
        self._read: frozenset[str] | None = None

    def structure(self, system: System) -> Structure:
        """What `system` is made of and costs. Raises ValueError if it cannot be built."""
        key = canonical([system.settings["task"], system.settings["model"]])
        if key not in self._structures:
            self._structures[key] = _structure(system)
        return self._structures[key]

    def trace(self, system: System, point: int = 0) -> Trace:
        """One seeded pass at weights number `point`. Raises ValueError if it cannot be run here."""
        if self._read is None:
            self._read = _trace(system, point).objective_reads
        train = {name: value for name, value in system.settings["train"].items() if name in self._read}
        key = (canonical([system.settings["task"], system.settings["model"], train]), point)
        if key not in self._traces:
            self._traces[key] = _trace(system, point)
        return self._traces[key]


def _structure(system: System) -> Structure:
    model = build_model(system.model, system.shape, SEED, torch.device("meta"))
    least, most = depth_range(system.model)
    length = system.shape.length_max
    return Structure(
        modules={name: type(module).__name__ for name, module in model.named_modules() if name},
        shapes={name: tuple(each.shape) for name, each in model.named_parameters()},
        parameters=sum(each.numel() for each in model.parameters()),
        depth_min=least,
        depth_max=most,
        flops_min=float(flops(system.model, system.shape, length, least)),
        flops_max=float(flops(system.model, system.shape, length, most)),
    )


def _trace(system: System, point: int) -> Trace:
    model = build_model(system.model, system.shape, SEED)
    _move(model, point)
    set_dropout_context(model, SEED, 0)
    output = model(synthetic_batch(system.shape, EXAMPLES, min(LENGTH, system.shape.length_max), SEED))
    assert isinstance(output, Output)
    watched = _Watched(system.train)
    loss = objective(output, cast(TrainConfig, watched))
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [(name, each.grad) for name, each in model.named_parameters() if each.grad is not None]
    norms = [(name, float(each.norm()), float(each.sum())) for name, each in gradients]
    return Trace(
        loss=float(loss.detach()),
        gradient_norm=sum(norm**2 for _, norm, _ in norms) ** 0.5,
        gradients=tuple(norms),
        layers=(*output.encoded.depth.tolist(), *output.encoded.computed.tolist()),
        objective_reads=frozenset(watched.read),
    )


@torch.no_grad()
def _move(model: nn.Module, point: int) -> None:
    """Leave the initial weights at point 0; else move vectors at random and lone numbers far up or down."""
    if point == 0:
        return
    for name, parameter in model.named_parameters():
        if parameter.numel() == 1:
            parameter.add_(_FAR if point % 2 else -_FAR)
        elif parameter.ndim == 1:
            stream = torch_stream(SEED, "move", point, name)
            parameter.add_(torch.randn(parameter.shape, generator=stream), alpha=_NOISE)


class _Watched:
    """Training settings that remember which of their fields were read."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._config, name)
