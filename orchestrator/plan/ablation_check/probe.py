"""Build the systems of a plan and run them on synthetic examples, with a cache of models and results.

Initial weights and dropout come from random streams named after modules. So two systems that differ only in
settings without an effect agree in every pass.
"""

from dataclasses import asdict, replace

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
from orchestrator.plan.ablation_check.weights import SEED, Weights
from orchestrator.plan.display.format import bytes_amount
from orchestrator.plan.limits import size_problem
from orchestrator.plan.space_check.metrics import reported_metrics
from orchestrator.plan.training_code.settings import System, common_factor, divide_widths_by, widths
from trainables import catalog
from trainables.assembly import build_model, find_unseeded_tensors
from trainables.field_effects import TrialFacts, normal_forms
from trainables.settings import limit_depth
from trainables.threads import cpu_threads
from trainables.training.evaluate import halting

LAYERS = 64
"""Maximum number of layers that are run; parameters and FLOPs are those of the full model."""
NARROW = 64
"""Width to which models are reduced approximately if the width does not matter."""
KEPT_MODELS = 2
COPIES = 3
"""Memory of weights, gradients and activations, as a multiple of the memory of the weights."""


class Probe:
    """Builder and runner of systems that caches measurements."""

    def __init__(self, *, faults_only: bool = False) -> None:
        """Create an empty cache.

        Args:
            faults_only: Whether to look only for faults, and omit notes and all evidence but the first.
        """
        self.faults_only = faults_only
        self._structures: dict[str, Structure] = {}
        self._measured: dict[tuple[str, str, Pass, int], Measurements] = {}
        self._halting: dict[tuple[str, Weights], dict[str, float]] = {}
        self._metrics: dict[str, tuple[str, ...]] = {}
        self._operations: dict[str, int] = {}
        self._narrow: dict[tuple[int, int], tuple[System, System]] = {}
        self._models: dict[str, tuple[nn.Module, dict[str, torch.Tensor]]] = {}

    def narrow(self, system: System) -> System:
        """Return `system` with a narrow model, see `divide_widths_by`.

        Every difference between narrow models is also one between the systems.
        """
        return self.narrow_pair(system, system)[0]

    def narrow_pair(self, first: System, second: System) -> tuple[System, System]:
        """Return both systems with narrow models, which differ only if the full models do.

        All widths of both are divided by one number. If that is impossible, both are returned unchanged.
        """
        factor = common_factor(widths(first), widths(second), NARROW)
        quick = self._narrow_system(first, factor), self._narrow_system(second, factor)
        return quick if quick[0] is not first and quick[1] is not second else (first, second)

    def same_model(self, first: System, second: System) -> bool:
        """Return whether both systems have the same model and task shape."""
        return self._key(first) == self._key(second)

    def structure(self, system: System) -> Structure:
        """Return modules, shapes and costs of `system`; raise ValueError if it cannot be built."""
        key = self._key(system)
        if key not in self._structures:
            meta_model = build_model(system.model, system.shape, SEED, torch.device("meta"))
            self._structures[key] = Structure.of(system, meta_model)
        return self._structures[key]

    def parameters(self, system: System) -> int:
        """Return the number of parameters of `system`; raise ValueError if it cannot be built."""
        return self.structure(system).parameters

    def measure(self, system: System, requested_pass: Pass, longest: int | None = None) -> Measurements:
        """Return the results of one pass.

        Args:
            system: Settings of a trial.
            requested_pass: Settings of the pass.
            longest: Maximum number of tokens per input; by default the maximum of training.

        Raises:
            ValueError: The system cannot be run on this machine.
        """
        length = longest or system.shape.length_max
        settings = _loss_settings(system) if requested_pass.trains else ""
        key = (self._key(system), settings, requested_pass, length)
        learning_key = (*key[:2], replace(requested_pass, learns=True), length)
        if requested_pass.trains and key not in self._measured and learning_key in self._measured:
            self._measured[key] = replace(self._measured[learning_key], gradient=None)
        if key not in self._measured:
            self._measured[key] = measure(system, self._model(system), requested_pass, length)
        return self._measured[key]

    def metrics(self, system: System) -> tuple[str, ...]:
        """Return the names of all metrics that a search trial of `system` reports.

        Raises:
            ValueError: The system cannot be run, on this machine or on any.
        """
        if (reason := size_problem(system, self.parameters)) is not None:
            raise ValueError(reason)
        key = canonical([system.settings["task"], system.settings["train"], self._key(system)])
        if key not in self._metrics:
            narrow = self.narrow(system)
            with cpu_threads(1):
                output = run(narrow, self._model(narrow), Weights.INITIAL, example_batch(narrow), trains=True)
            self._metrics[key] = reported_metrics(system, example_batch(system), output)
        return self._metrics[key]

    def halting(self, system: System, point: Weights) -> dict[str, float]:
        """Return the metrics that depend on halting alone, for two examples at weights `point`."""
        key = (self._key(system), point)
        if key not in self._halting:
            with cpu_threads(1):
                output = run(system, self._model(system), point, example_batch(system), trains=True)
            self._halting[key] = halting(output.encoded)
        return self._halting[key]

    def operations(self, system: System) -> int:
        """Return the counted FLOPs of an evaluation; raise ValueError if it cannot be run on this machine."""
        key = self._key(system)
        if key not in self._operations:
            self._operations[key] = count_flops(system, self._model(system), Weights.RANDOM)
        return self._operations[key]

    def _narrow_system(self, system: System, factor: int) -> System:
        key = id(system), factor
        if key not in self._narrow:
            # A reference to the system is stored, so that its id is not reused.
            self._narrow[key] = system, divide_widths_by(system, factor)
        return self._narrow[key][1]

    def _model(self, system: System) -> nn.Module:
        """Return the model with its initial weights; two models are cached, since comparisons need two."""
        key = self._key(system)
        if key not in self._models:
            while len(self._models) >= KEPT_MODELS:
                del self._models[next(iter(self._models))]
            structure = self.structure(system)
            _require_memory(structure)
            _require_streams(system, structure)
            model = _built(system)
            if is_custom(system):
                _require_repeated(system, model, _built(system))
                model = _built(system)
            self._models[key] = model, {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model, initial = self._models[key]
        model.load_state_dict(initial)
        return model

    def _key(self, system: System) -> str:
        """Return a key of the model and of the task's shape, which determine the built model."""
        return canonical([system.settings["model"], asdict(system.shape)])


def is_custom(system: System) -> bool:
    """Return whether the model comes from another package."""
    return catalog.is_custom("models", system.settings["model"]["name"])


def _loss_settings(system: System) -> str:
    """Return the training settings that affect the loss of a step."""
    return canonical(normal_forms(system.train, TrialFacts(system.shape.head))["loss"])


def _require_memory(structure: Structure) -> None:
    """Raise ValueError for a model that exceeds the available memory of this machine."""
    needed_bytes = COPIES * structure.parameters * torch.get_default_dtype().itemsize
    if needed_bytes > (free_bytes := psutil.virtual_memory().available):
        raise ValueError(
            f"a model must fit into memory for the ablation check, got {structure.parameters:,} parameters "
            f"that take {bytes_amount(needed_bytes)} but {bytes_amount(free_bytes)} are free; make it "
            "smaller or use more memory"
        )


def _require_streams(system: System, structure: Structure) -> None:
    """Raise ValueError for a model whose initial weights depend on more than names and seed.

    Otherwise arms with equal seeds would not start from equal weights.
    """
    if not structure.plain:
        return
    drawn_streams = find_unseeded_tensors(limit_depth(system.model, LAYERS), system.shape)
    if drawn_streams:
        raise ValueError(
            f"{drawn_streams[0]} must be initialized in the method reset_parameters of its module, so that "
            "it has the same random stream in every arm, but a constructor initializes it; "
            f"{_move(drawn_streams[0])}"
        )


def _move(name: str) -> str:
    """Return advice on a tensor that a constructor draws."""
    if ".parametrizations." not in name:
        return "move it there"
    owner, _, rest = name.partition(".parametrizations.")
    weight = f"{owner.rpartition('.')[2]}.{rest.split('.')[0]}"
    return (
        "a parametrized weight is drawn by the module around it: in its reset_parameters, assign a tensor "
        f"that is drawn there to self.{weight}"
    )


def _require_repeated(system: System, *models: nn.Module) -> None:
    """Raise ValueError for a model whose passes are not reproducible, since any two arms would differ."""
    batch = example_batch(system)
    losses = [run(system, model, Weights.INITIAL, batch, trains=True).loss.detach() for model in models]
    if not torch.equal(*map(torch.nan_to_num, losses)):
        message = " and ".join(f"{float(tensor.mean()):.8g}" for tensor in losses)
        raise ValueError(
            "a model must give the same loss for the same weights, inputs and seed, got losses of "
            f"{message} in two passes; draw only from PyTorch's generators or from named streams"
        )


def _built(system: System) -> nn.Module:
    model = limit_depth(system.model, LAYERS)
    with cpu_threads(1):
        return build_model(model, system.shape, SEED, "cpu", build_model(model, system.shape, SEED, "meta"))
