"""Build the systems of a plan and run them on synthetic examples, with a cache of models and results.

Initial weights and dropout come from random streams named after modules. So two systems that differ only in
settings without an effect agree in every pass.
"""

from collections.abc import Callable, Hashable
from dataclasses import asdict
from typing import Any, TypeVar

import psutil
import torch
from torch import nn

from orchestrator.identity import canonical
from orchestrator.plan.ablation_check.passes import (
    Measurements,
    Pass,
    count_flops,
    example_batch,
    measure,
    run,
)
from orchestrator.plan.ablation_check.structure import Structure
from orchestrator.plan.ablation_check.weights import SEED, TestedWeights
from orchestrator.plan.display.format import bytes_amount
from orchestrator.plan.limits import size_problem
from orchestrator.plan.space_check.metrics import reported_metrics
from orchestrator.plan.training_code.settings import ParsedSettings, common_factor, divide_widths_by, widths
from trainables import catalog
from trainables.assembly import build_model, find_unseeded_tensors
from trainables.costs import depth_range, flops
from trainables.field_effects import TrialFacts, normal_forms
from trainables.settings import limit_depth
from trainables.threads import cpu_threads
from trainables.training.evaluate import halting
from trainables.types import Output

T = TypeVar("T")

LAYERS = 64
"""Maximum number of layers that are run; parameters and FLOPs are those of the full model."""
NARROW_WIDTH = 64
"""Width to which models are reduced approximately if the width does not matter."""
MAX_CACHED_MODELS = 2
MEMORY_FACTOR = 3
"""Memory of weights, gradients and activations, as a multiple of the memory of the weights."""


class Probe:
    """Builder and runner of systems that caches measurements."""

    def __init__(self, *, faults_only: bool = False) -> None:
        """Create an empty cache.

        Args:
            faults_only: Whether to look only for faults, and omit notes and all evidence but the first.
        """
        self.faults_only = faults_only
        self._results: dict[tuple[Hashable, ...], Any] = {}
        self._models: dict[str, tuple[nn.Module, dict[str, torch.Tensor]]] = {}

    def narrow(self, system: ParsedSettings) -> ParsedSettings:
        """Return `system` with a narrow model, see `divide_widths_by`.

        Every difference between narrow models is also one between the systems.
        """
        return self.narrow_pair(system, system)[0]

    def narrow_pair(
        self, first: ParsedSettings, second: ParsedSettings
    ) -> tuple[ParsedSettings, ParsedSettings]:
        """Return both systems with narrow models, which differ only if the full models do.

        All widths of both are divided by one number. If that is impossible, both are returned unchanged.
        """
        factor = common_factor(widths(first), widths(second), NARROW_WIDTH)
        quick = divide_widths_by(first, factor), divide_widths_by(second, factor)
        return quick if quick[0] is not first and quick[1] is not second else (first, second)

    def same_model(self, first: ParsedSettings, second: ParsedSettings) -> bool:
        """Return whether both systems have the same model and task shape."""
        return _key(first) == _key(second)

    def structure(self, system: ParsedSettings) -> Structure:
        """Return modules, shapes and costs of `system`; raise ValueError if it cannot be built."""
        return self._once(("structure", _key(system)), lambda: _structure(system))

    def parameters(self, system: ParsedSettings) -> int:
        """Return the number of parameters of `system`; raise ValueError if it cannot be built."""
        return self.structure(system).parameters

    def measure(
        self, system: ParsedSettings, requested_pass: Pass, longest: int | None = None
    ) -> Measurements:
        """Return the results of one pass.

        Args:
            system: Settings of a trial.
            requested_pass: Settings of the pass.
            longest: Maximum number of tokens per input; by default the maximum of training.

        Raises:
            ValueError: The system cannot be run on this machine.
        """
        length = longest or system.shape.length_max
        facts = TrialFacts(system.shape.head)
        settings = canonical(normal_forms(system.train, facts)["loss"]) if requested_pass.trains else ""
        key = "pass", _key(system), settings, requested_pass, length
        return self._once(key, lambda: measure(system, self._model(system), requested_pass, length))

    def metrics(self, system: ParsedSettings) -> tuple[str, ...]:
        """Return the names of all metrics that a search trial of `system` reports.

        Raises:
            ValueError: The system cannot be run, on this machine or on any.
        """
        if (reason := size_problem(system, self.parameters)) is not None:
            raise ValueError(reason)
        key = "metrics", _key(system), canonical([system.settings["task"], system.settings["train"]])
        narrow, batch = self.narrow(system), example_batch(system)
        return self._once(
            key, lambda: reported_metrics(system, batch, self._output(narrow, TestedWeights.INITIAL))
        )

    def halting(self, system: ParsedSettings, point: TestedWeights) -> dict[str, float]:
        """Return the metrics that depend on halting alone, for two examples at weights `point`."""
        key = "halting", _key(system), point
        return self._once(key, lambda: halting(self._output(system, point).encoded))

    def operations(self, system: ParsedSettings) -> int:
        """Return the counted FLOPs of an evaluation; raise ValueError if it cannot be run on this machine."""
        key = "operations", _key(system)
        return self._once(key, lambda: count_flops(system, self._model(system), TestedWeights.RANDOM))

    def _once(self, key: tuple[Hashable, ...], compute: Callable[[], T]) -> T:
        """Return the cached result for `key`, computed at the first call."""
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result

    def _output(self, system: ParsedSettings, point: TestedWeights) -> Output:
        with cpu_threads(1):
            return run(system, self._model(system), point, example_batch(system), trains=True)

    def _model(self, system: ParsedSettings) -> nn.Module:
        """Return the model with its initial weights; two models are cached, since comparisons need two."""
        key = _key(system)
        if key not in self._models:
            while len(self._models) >= MAX_CACHED_MODELS:
                del self._models[next(iter(self._models))]
            _require_memory(self.structure(system))
            _require_streams(system)
            model = _built(system)
            if is_custom(system):
                _require_repeated(system, model, _built(system))
                model = _built(system)
            self._models[key] = model, {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model, initial = self._models[key]
        model.load_state_dict(initial)
        return model


def _key(system: ParsedSettings) -> str:
    """Return a key of the model and of the task's shape, which determine the built model."""
    return canonical([system.settings["model"], asdict(system.shape)])


def _structure(system: ParsedSettings) -> Structure:
    length = system.shape.length_max
    depths = depth_range(system.model, length)
    model = build_model(system.model, system.shape, SEED, torch.device("meta"))
    return Structure.of(model, *(float(flops(system.model, system.shape, length, depth)) for depth in depths))


def is_custom(system: ParsedSettings) -> bool:
    """Return whether the model comes from another package."""
    return catalog.is_custom("models", system.settings["model"]["name"])


def _require_memory(structure: Structure) -> None:
    """Raise ValueError for a model that exceeds the available memory of this machine."""
    needed_bytes = MEMORY_FACTOR * structure.parameters * torch.get_default_dtype().itemsize
    if needed_bytes > (free_bytes := psutil.virtual_memory().available):
        raise ValueError(
            f"a model must fit into memory for the ablation check, got {structure.parameters:,} parameters "
            f"that take {bytes_amount(needed_bytes)} but {bytes_amount(free_bytes)} are free; make it "
            "smaller or use more memory"
        )


def _require_streams(system: ParsedSettings) -> None:
    """Raise ValueError for a model whose initial weights depend on more than names and seed.

    Otherwise arms with equal seeds would not start from equal weights.
    """
    if drawn_streams := find_unseeded_tensors(limit_depth(system.model, LAYERS), system.shape):
        raise ValueError(
            f"{drawn_streams[0]} must be initialized in the method reset_parameters of its module, so that "
            "it has the same random stream in every arm, but a constructor initializes it; move it there"
        )


def _require_repeated(system: ParsedSettings, *models: nn.Module) -> None:
    """Raise ValueError for a model whose passes are not reproducible, since any two arms would differ."""
    batch = example_batch(system)
    losses = [run(system, model, TestedWeights.INITIAL, batch, trains=True).loss.detach() for model in models]
    if not torch.equal(*map(torch.nan_to_num, losses)):
        message = " and ".join(f"{float(tensor.mean()):.8g}" for tensor in losses)
        raise ValueError(
            "a model must give the same loss for the same weights, inputs and seed, got losses of "
            f"{message} in two passes; draw only from PyTorch's generators or from named streams"
        )


def _built(system: ParsedSettings) -> nn.Module:
    model = limit_depth(system.model, LAYERS)
    with cpu_threads(1):
        return build_model(model, system.shape, SEED, "cpu", build_model(model, system.shape, SEED, "meta"))
