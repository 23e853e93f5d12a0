"""Ablation check of a custom trainable: compare weights, outputs and gradients of built models."""

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from math import isfinite
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded, ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles
from orchestrator.plan.ablation_check.built_in_arms import round_portably
from orchestrator.plan.types import ArmCheck
from trainables.custom.extensions import describe_error
from trainables.custom.generator_state import seed_generators
from trainables.custom.outside import Trainable, load

if TYPE_CHECKING:
    from torch import Tensor, nn

SEED = 0


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint of a model: modules, weights, and results on its example."""

    modules: Mapping[str, str]
    """Class name by qualified module name."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape by qualified parameter name."""
    parameters: int
    outputs: tuple[tuple[float, float], ...] = ()
    """Sum and norm of every output tensor; empty without an example."""
    gradient: tuple[tuple[str, float], ...] = ()
    """Norm of the gradient of the outputs' mean square, by parameter."""
    flops: float | None = None
    """FLOPs of the forward pass of the example, as counted by PyTorch."""

    @property
    def is_finite(self) -> bool:
        """Return whether all outputs and gradients are finite."""
        numbers = (*chain.from_iterable(self.outputs), *(norm for _, norm in self.gradient))
        return all(map(isfinite, numbers))

    def equals(self, second: "Fingerprint") -> bool:
        """Return whether both models ran and have the same results, ignoring module names."""
        own, other = (
            (each.outputs, each.parameters, each.flops, sorted(norm for _, norm in each.gradient if norm))
            for each in (self, second)
        )
        return bool(self.outputs) and self.is_finite and own == other


def fingerprint_model(
    trainable: Trainable, settings: Mapping[str, Any], on_call: Callable[[str], None] = lambda _: None
) -> Fingerprint:
    """Build the model of `settings`, run it on its example if there is one, and return its fingerprint.

    Args:
        trainable: A trainable with `build`.
        settings: Settings of an arm.
        on_call: Called with the name of each function before it is called.

    Raises:
        ValueError: The model cannot be built or run.
    """
    import torch

    assert trainable.build is not None, "there must be something to build"
    seed_generators(SEED)  # since `build` may draw random numbers
    on_call("build(settings)")
    model = _call_function(trainable.build, settings, "build")
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"build must return an nn.Module, got {type(model).__name__}")  # noqa: TRY004
    if trainable.example is None:
        return _built(model)
    seed_generators(SEED)
    on_call("example(settings)")
    example = _call_function(trainable.example, settings, "example")
    on_call("the model of build(settings)")
    return _run(model, example)


class ModelBuilder:
    """Builds models of a trainable in child processes, so that `build` cannot affect this process."""

    def __init__(self, trainable: Trainable) -> None:
        """Start a server that imports the trainable."""
        self._path = trainable.path
        self._server = ChildServer(settings_here(trainable.path.partition(":")[0], Path.cwd(), [__name__]))
        weakref.finalize(self, self._server.close)

    def look(self, settings: Mapping[str, Any], on_call: Callable[[str], None]) -> Fingerprint:
        """Call `fingerprint_model` in a child process. Raise ValueError if the model cannot be built."""
        order = ChildOrder(f"{__name__}:fingerprint_in_child", (self._path, copy.deepcopy(dict(settings))))
        self._server.start(order)
        while not isinstance(message := self._server.receive(), Fingerprint):
            if isinstance(message, ChildEnded):
                raise ValueError(f"its process {message.words}")  # noqa: TRY004
            if isinstance(message, ValueError):
                raise message
            on_call(message)
        return message


def fingerprint_in_child(
    model_spec: tuple[str, Mapping[str, Any]], connection: Connection, _: LaunchFiles
) -> None:
    """Build and run a model in this child process, and send its fingerprint."""
    path, settings = model_spec
    try:
        fingerprint = fingerprint_model(load(path), settings, connection.send)
    except ValueError as error:
        connection.send(ValueError(str(error)))
    else:
        connection.send(fingerprint)


def _call_function(function: Any, settings: Mapping[str, Any], name: str) -> Any:
    try:
        return function(copy.deepcopy(dict(settings)))  # the function may change its argument
    except (Exception, SystemExit) as error:  # user code may raise any exception
        raise ValueError(f"{name}(settings) raised {describe_error(error)}") from error


def _built(model: "nn.Module") -> Fingerprint:
    """Return the fingerprint of a model that was built but not run.

    Raises:
        ValueError: The model has lazy weights without a shape.
    """
    from torch.nn.parameter import is_lazy

    weights = dict(model.named_parameters())
    if lazy := [name for name, parameter in weights.items() if is_lazy(parameter)]:
        raise ValueError(
            f"a lazy module must process an input before its weights can be compared, got {lazy[0]} "
            "without a shape: write example(settings), which is run once, or give the sizes in build"
        )
    return Fingerprint(
        modules={name: type(module).__name__ for name, module in model.named_modules() if name},
        shapes={name: tuple(parameter.shape) for name, parameter in weights.items()},
        parameters=sum(weight.numel() for weight in weights.values()),
    )


def _run(model: "nn.Module", example: Any) -> Fingerprint:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    arguments = example if isinstance(example, tuple) else () if isinstance(example, Mapping) else (example,)
    keyword_inputs = dict(example) if isinstance(example, Mapping) else {}
    try:
        with FlopCounterMode(display=False) as counter:
            tensors = [_to_doubles(tensor) for tensor in _tensors(model(*arguments, **keyword_inputs))]
        total = sum((tensor.square().mean() for tensor in tensors), torch.zeros((), dtype=torch.float64))
        weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        tracked = [*weights.values()] if total.requires_grad else []
        grads = torch.autograd.grad(total, tracked, allow_unused=True) if tracked else ()
        outputs = tuple((float(tensor.detach().sum()), float(tensor.detach().norm())) for tensor in tensors)
        gradient = tuple(
            (name, float(grad.norm())) for name, grad in zip(weights, grads, strict=False) if grad is not None
        )
    except (Exception, SystemExit) as error:  # user code may raise any exception
        raise ValueError(f"the model cannot run its example: {describe_error(error)}") from error
    flops = float(counter.get_total_flops())
    return replace(_built(model), outputs=outputs, gradient=gradient, flops=flops)


def _to_doubles(value: "Tensor") -> "Tensor":
    """Return `value` as real doubles; integers and booleans are converted too."""
    import torch

    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()


def _tensors(value: Any) -> "Iterator[Tensor]":
    """Yield every tensor in the output of a model."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name, None))


RUN_ANEW = (
    "the model of build(settings), run on example(settings), computes something else each time, though the "
    "global generators of Python, NumPy and PyTorch start from one seed: outputs and gradients are not "
    "compared"
)
BUILT_ANEW = (
    "build(settings) makes another model each time, though it is given the same settings and the global "
    "generators of Python, NumPy and PyTorch start from one seed: models are not compared"
)
NOT_FINITE = "the output of its model on example(settings), or the gradient, is not finite"


def compare_fingerprints(
    arm: str, reference: Fingerprint, own: Fingerprint, repeated: Fingerprint, *, has_reference: bool
) -> ArmCheck:
    """Return the result of the ablation check of `arm`.

    Args:
        arm: Name of the arm.
        reference: Fingerprint of the reference.
        own: Fingerprint of the arm.
        repeated: Fingerprint of the reference when it is built again; quantities that differ from `reference`
            are not reproducible and are ignored.
        has_reference: Whether the arm is compared with a reference.
    """
    from orchestrator.plan.ablation_check.structure import tree_difference

    is_built = (reference.shapes, reference.modules) == (repeated.shapes, repeated.modules)
    computes = not reference.outputs or not reference.is_finite or repeated.equals(reference)
    differences = {
        "weights": is_built and reference.shapes != own.shapes,
        "FLOPs": reference.flops == repeated.flops and reference.flops != own.flops,
        # Compare texts, so that NaN equals NaN.
        "outputs": computes and repr(reference.outputs) != repr(own.outputs),
        "gradient": computes and repr(reference.gradient) != repr(own.gradient),
    }
    notes = () if own.is_finite or (has_reference and not reference.is_finite) else (NOT_FINITE,)
    if not has_reference and not (is_built and computes):
        notes = (*notes, RUN_ANEW if is_built else BUILT_ANEW)
    norm = sum(part**2 for _, part in own.gradient) ** 0.5 if own.gradient else None
    return ArmCheck(
        arm=arm,
        parameters=own.parameters,
        module_tree_added=tree_difference(reference, own) if is_built else (),
        module_tree_removed=tree_difference(own, reference) if is_built else (),
        flops_min=own.flops,
        flops_max=own.flops,
        loss=None,
        gradient_norm=None if norm is None or not isfinite(norm) else round_portably(norm),
        functional_change=has_reference and (differences["outputs"] or differences["gradient"]),
        evidence=tuple(name for name, differs in differences.items() if has_reference and differs),
        notes=notes,
    )
