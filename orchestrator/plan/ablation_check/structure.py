"""Structure and costs of a model, measured without running it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Structure:
    """Modules, shapes and FLOPs of a model; it may be on the meta device."""

    modules: Mapping[str, str]
    """Class name by qualified module name."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape by qualified parameter name."""
    checkpoint_shapes: Mapping[str, tuple[int, ...]]
    """Shape of all tensors in a checkpoint, parameters and buffers, by qualified name."""
    parameters: int
    flops_min: float
    """Forward FLOPs of one sequence of the longest training length at the least depth; 0 for custom models.
    """
    flops_max: float

    @classmethod
    def of(cls, model: nn.Module, flops_min: float = 0.0, flops_max: float = 0.0) -> "Structure":
        """Return the structure of `model`; raise RuntimeError if lazy weights have no shape yet."""
        shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        state = model.state_dict().items()
        return cls(
            modules={name: type(module).__name__ for name, module in model.named_modules() if name},
            shapes=shapes,
            checkpoint_shapes={
                name: tuple(value.shape) for name, value in state if isinstance(value, torch.Tensor)
            },
            parameters=sum(map(prod, shapes.values())),
            flops_min=flops_min,
            flops_max=flops_max,
        )


def tree_difference(first: Structure, second: Structure) -> tuple[str, ...]:
    """Return outermost modules that only `second` has, modules with another class, and reshaped weights."""
    new_modules = [name for name in second.modules if name not in first.modules]
    added = set(new_modules)
    outermost = [name for name in new_modules if name.rpartition(".")[0] not in added]
    kinds = [name for name in second.modules if first.modules.get(name, "") not in {"", second.modules[name]}]
    reshaped = {
        name: shape for name, shape in second.shapes.items() if first.shapes.get(name, shape) != shape
    }
    shapes = [f"{name} {'x'.join(map(str, shape))}" for name, shape in reshaped.items()]
    return (*(f"{name}: {second.modules[name]}" for name in [*outermost, *kinds]), *shapes)
