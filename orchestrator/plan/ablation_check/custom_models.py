"""Ablation check of a custom trainable: compare weights, outputs and gradients of built models."""

import copy
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from math import isfinite
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded, ChildOrder
from orchestrator.isolation.working_folder import LaunchFiles
from orchestrator.plan.ablation_check.built_in_arms import round_portably
from orchestrator.plan.ablation_check.structure import Structure, tree_difference
from orchestrator.plan.ablation_check.weights import SEED
from orchestrator.plan.types import ArmCheck
from trainables.custom.extensions import describe_error
from trainables.custom.generator_state import seed_generators
from trainables.custom.outside import Trainable, load


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint of a model: structure, and results on its example if there is one."""

    structure: Structure
    outputs: tuple[tuple[float, float], ...] = ()
    """Sum and norm of every output tensor."""
    gradient: tuple[tuple[str, float], ...] = ()
    """Norm of the gradient of the outputs' mean square, by parameter."""
    flops: float | None = None
    """FLOPs of the forward pass, as counted by PyTorch."""

    @property
    def is_finite(self) -> bool:
        """Return whether all outputs and gradients are finite."""
        return all(map(isfinite, (*chain.from_iterable(self.outputs), *dict(self.gradient).values())))


class ModelBuilder:
    """Builds models of a trainable in child processes, so that `build` cannot affect this process."""

    def __init__(self, trainable: Trainable) -> None:
        """Start a server that imports the trainable."""
        self._path = trainable.path
        self._server = ChildServer(settings_here(trainable.path.partition(":")[0], Path.cwd(), [__name__]))
        weakref.finalize(self, self._server.close)

    def fingerprint(self, settings: Mapping[str, Any], on_call: Callable[[str], None]) -> Fingerprint:
        """Build and run a model in a child process.

        Args:
            settings: Settings of an arm.
            on_call: Called with the name of each function before it is called.

        Raises:
            ValueError: The model cannot be built or run.
        """
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
    """Build and run a model in this child process.

    Send the name of each function before it is called, then the fingerprint or a ValueError.
    """
    path, settings = model_spec
    trainable, phase = load(path), "build(settings)"
    assert trainable.build is not None, "there must be something to build"
    message: Fingerprint | ValueError
    try:
        connection.send(phase)
        seed_generators(SEED)  # since `build` may draw random numbers
        model = trainable.build(copy.deepcopy(settings))
        if not isinstance(model, nn.Module):
            message = ValueError(f"build must return an nn.Module, got {type(model).__name__}")
        elif trainable.example is None:
            message = Fingerprint(Structure.of(model))
        else:
            connection.send(phase := "example(settings)")
            seed_generators(SEED)
            example = trainable.example(copy.deepcopy(settings))
            connection.send(phase := "the model of build(settings)")
            message = _run(model, example)
    except (Exception, SystemExit) as error:  # user code may raise any exception
        message = ValueError(f"{phase} raised {describe_error(error)}")
    connection.send(message)


def _run(model: nn.Module, example: Any) -> Fingerprint:
    arguments = example if isinstance(example, tuple) else () if isinstance(example, Mapping) else (example,)
    options = dict(example) if isinstance(example, Mapping) else {}
    with FlopCounterMode(display=False) as counter:
        tensors = _tensors(model(*arguments, **options))
    total = sum((tensor.square().mean() for tensor in tensors), torch.zeros((), dtype=torch.float64))
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    tracked = [*weights.values()] if total.requires_grad else []
    grads = torch.autograd.grad(total, tracked, allow_unused=True) if tracked else ()
    norms = [(name, grad.norm()) for name, grad in zip(weights, grads, strict=False) if grad is not None]
    return Fingerprint(
        Structure.of(model),
        outputs=tuple((float(tensor.detach().sum()), float(tensor.detach().norm())) for tensor in tensors),
        gradient=tuple((name, float(norm)) for name, norm in norms),
        flops=float(counter.get_total_flops()),
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return every tensor in the output of a model, as real doubles."""
    if isinstance(value, torch.Tensor):
        return [(torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).double()]
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name, None) for each in fields(value)}
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


NOT_REPEATABLE = (
    "two calls of build(settings) gave different models or outputs, although Python, NumPy and PyTorch had "
    "the same seeds. The ablation check ignores the values that differ; seed all other random generators"
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
    is_built = reference.structure == repeated.structure
    # Compare texts, so that NaN equals NaN.
    results, repeated_results, own_results = (
        {"FLOPs": each.flops, "outputs": repr(each.outputs), "gradient": repr(each.gradient)}
        for each in (reference, repeated, own)
    )
    differences = ["weights"] if is_built and reference.structure.shapes != own.structure.shapes else []
    differences += [name for name in results if results[name] == repeated_results[name] != own_results[name]]
    notes = () if own.is_finite or (has_reference and not reference.is_finite) else (NOT_FINITE,)
    if not has_reference and (not is_built or results != repeated_results):
        notes = (*notes, NOT_REPEATABLE)
    norm = sum(part**2 for _, part in own.gradient) ** 0.5 if own.gradient else None
    return ArmCheck(
        arm=arm,
        parameters=own.structure.parameters,
        module_tree_added=tree_difference(reference.structure, own.structure) if is_built else (),
        module_tree_removed=tree_difference(own.structure, reference.structure) if is_built else (),
        flops_min=own.flops,
        flops_max=own.flops,
        loss=None,
        gradient_norm=None if norm is None or not isfinite(norm) else round_portably(norm),
        functional_change=not {"outputs", "gradient"}.isdisjoint(differences),
        evidence=tuple(differences),
        notes=notes,
    )
