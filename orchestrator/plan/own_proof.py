"""What building a model of an own trainable shows: weights, and with an example outputs and gradients too."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.plan.proof import rounded
from orchestrator.plan.types import ArmProof
from trainables.extensions import said
from trainables.outside import Trainable

if TYPE_CHECKING:
    from torch import Tensor

SEED = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A model, seen once."""

    modules: Mapping[str, str]
    """Class name by qualified module name."""
    shapes: Mapping[str, tuple[int, ...]]
    """By qualified parameter name."""
    parameters: int
    outputs: tuple[tuple[float, float], ...] = ()
    """Sum and norm of every output tensor; empty without an example."""
    gradient: tuple[tuple[str, float], ...] = ()
    """Norm of the gradient of the outputs' mean square, by parameter."""
    flops: float | None = None
    """Of the forward pass of the example, as PyTorch counts them."""


def look(
    trainable: Trainable, settings: Mapping[str, Any], begins: Callable[[str], None] = lambda _: None
) -> Seen:
    """The model of `settings`. `begins` hears what is called next. Raises ValueError if it cannot be built or
    run.
    """
    import torch

    assert trainable.build is not None, "there must be something to build"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        begins("build(settings)")
        model = _called(trainable.build, settings, "build")
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"build must return an nn.Module, got {type(model).__name__}")  # noqa: TRY004
        seen = Seen(
            modules={name: type(module).__name__ for name, module in model.named_modules() if name},
            shapes={name: tuple(each.shape) for name, each in model.named_parameters()},
            parameters=sum(each.numel() for each in model.parameters()),
        )
        if trainable.example is None:
            return seen
        torch.manual_seed(SEED)
        begins("example(settings)")
        example = _called(trainable.example, settings, "example")
        begins("the model of build(settings)")
        return _run(seen, model, example)


def _called(function: Any, settings: Mapping[str, Any], name: str) -> Any:
    try:
        return function(settings)
    except (Exception, SystemExit) as error:  # code of others may raise anything
        raise ValueError(f"{name}(settings) raised {said(error)}") from error


def _run(seen: Seen, model: Any, example: Any) -> Seen:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    arguments = example if isinstance(example, tuple) else () if isinstance(example, Mapping) else (example,)
    named = dict(example) if isinstance(example, Mapping) else {}
    try:
        with FlopCounterMode(display=False) as counter:
            made = list(_tensors(model(*arguments, **named)))
        total = sum((each.double().square().mean() for each in made), torch.zeros((), dtype=torch.float64))
        weights = {name: each for name, each in model.named_parameters() if each.requires_grad}
        grads = (
            torch.autograd.grad(total, list(weights.values()), allow_unused=True)
            if total.requires_grad
            else ()
        )
    except (Exception, SystemExit) as error:  # code of others may raise anything
        raise ValueError(f"the model cannot run its example: {said(error)}") from error
    return Seen(
        seen.modules,
        seen.shapes,
        seen.parameters,
        tuple((float(each.detach().double().sum()), float(each.detach().double().norm())) for each in made),
        tuple(
            (name, float(grad.norm())) for name, grad in zip(weights, grads, strict=False) if grad is not None
        ),
        float(counter.get_total_flops()),
    )


def _tensors(value: Any) -> "Iterator[Tensor]":
    """Every tensor of numbers inside what a model returned."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def differences_of(arm: str, before: Seen, after: Seen, *, compared: bool) -> ArmProof:
    """What `after`, the model of `arm`, has and does that `before` does not."""
    from orchestrator.plan.structure import tree_difference

    found = {
        "weights": before.shapes != after.shapes,
        "FLOPs": before.flops != after.flops,
        "outputs": before.outputs != after.outputs,
        "gradient": before.gradient != after.gradient,
    }
    norm = sum(each**2 for _, each in after.gradient) ** 0.5 if after.gradient else None
    return ArmProof(
        arm=arm,
        parameters=after.parameters,
        module_tree_added=tree_difference(before, after),
        module_tree_removed=tree_difference(after, before),
        flops_min=after.flops,
        flops_max=after.flops,
        loss=None,
        gradient_norm=None if norm is None else rounded(norm),
        functional_change=compared and (found["outputs"] or found["gradient"]),
        evidence=tuple(name for name, differs in found.items() if compared and differs),
    )
