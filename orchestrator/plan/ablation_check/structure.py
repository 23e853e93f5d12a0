"""Structure and costs of a system, measured without allocating its weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

from torch import nn

from orchestrator.plan.training_code.settings import System
from trainables.costs import depth_range, flops
from trainables.layers.plain import is_plain


@dataclass(frozen=True, slots=True)
class Structure:
    """Modules, shapes, depth and FLOPs of a system, measured without allocating its weights."""

    modules: Mapping[str, str]
    """Class name by qualified module name."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape by qualified parameter name."""
    saved: Mapping[str, tuple[int, ...]]
    """Shape of all tensors in a checkpoint, parameters and buffers, by qualified name."""
    parameters: int
    plain: bool
    """Whether some module may draw from the global generator."""
    depth_min: int
    depth_max: int
    flops_min: float
    """Forward FLOPs of one sequence of the longest training length at the least depth."""
    flops_max: float

    @classmethod
    def of(cls, system: System, model: nn.Module) -> "Structure":
        """Return the structure of `system`; `model` may be on the meta device."""
        shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        modules = dict(model.named_modules())
        length = system.shape.length_max
        least, most_layers = depth_range(system.model, length)
        return cls(
            modules={name: type(module).__name__ for name, module in modules.items() if name},
            shapes=shapes,
            saved={name: tuple(tensor.shape) for name, tensor in model.state_dict().items()},
            parameters=sum(map(prod, shapes.values())),
            plain=any(map(is_plain, modules.values())),
            depth_min=least,
            depth_max=most_layers,
            flops_min=float(flops(system.model, system.shape, length, least)),
            flops_max=float(flops(system.model, system.shape, length, most_layers)),
        )


class BuiltModel(Protocol):
    """Modules and weights of a built model."""

    @property
    def modules(self) -> Mapping[str, str]:
        """Class name by qualified module name."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape by qualified parameter name."""


def tree_difference(first: BuiltModel, second: BuiltModel) -> tuple[str, ...]:
    """Return outermost modules that only `second` has, modules with another class, and reshaped weights."""
    new_modules = [name for name in second.modules if name not in first.modules]
    added = set(new_modules)
    outermost = [name for name in new_modules if not any(parent in added for parent in _parents(name))]
    kinds = [name for name in second.modules if first.modules.get(name, "") not in {"", second.modules[name]}]
    reshaped = {
        name: shape for name, shape in second.shapes.items() if first.shapes.get(name, shape) != shape
    }
    shapes = [f"{name} {'x'.join(map(str, shape))}" for name, shape in reshaped.items()]
    return (*(f"{name}: {second.modules[name]}" for name in [*outermost, *kinds]), *shapes)


def _parents(name: str) -> Iterator[str]:
    """Yield the qualified names of the modules that contain the module `name`, the innermost first."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
