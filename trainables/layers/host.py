"""Host-side helpers of a training step: frequent small operations, uploads, and waits for the device."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from trainables.layers.constant_shapes import constant_shapes, copy_to, refuse_host_read

_FROM_TORCH: Any = vars(torch._C._FunctionBase)["apply"]
Record = TypeVar("Record")


def copy_to_host(flags: Bool[Tensor, " U"]) -> Bool[np.ndarray, " U"]:
    """Copy boolean flags to the host; the host waits for the device."""
    refuse_host_read("flags")
    return np.asarray(flags.tolist(), dtype=bool)


def upload(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Copy a table to `device`; the host does not wait for the copy."""
    shapes = constant_shapes()
    return copy_to(table, device) if shapes is None else shapes.table(table, device)


def upload_together(tables: Sequence[Int[np.ndarray, " _"]], device: torch.device) -> list[Int[Tensor, " _"]]:
    """Copy several tables of 64-bit integers to `device` by one copy, for which the host does not wait."""
    if len(tables) == 1:
        return [upload(tables[0], device)]
    sizes = [table.size for table in tables]
    return list(upload(np.concatenate(tables), device).split_with_sizes(sizes))


class Function(torch.autograd.Function):
    """An autograd function that is called without the checks that only `vmap` needs.

    Inputs must not be tensors of finished `torch.func` transforms: `run` does not check for them. The check
    takes `apply` about as long as the rest of its work.
    """

    _at_once: ClassVar[Any]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls._at_once = _FROM_TORCH.__get__(None, cls)

    @classmethod
    def run(cls, *value: Any) -> Any:
        """Return the result of `forward`."""
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*value)  # type: ignore[no-untyped-call]
        return cls._at_once(*value)


def replace_fields(record: Record, **fields: Any) -> Record:
    """Return the result of `dataclasses.replace(record, **fields)`, computed in a third of its time.

    A step creates hundreds of records. The dataclasses must be frozen and have no `__post_init__`. Values of
    `cached_property` are not copied.
    """
    host_copy = object.__new__(type(record))
    record_fields, copy_fields = record.__dict__, host_copy.__dict__
    for name in record.__dataclass_fields__:  # type: ignore[attr-defined]
        copy_fields[name] = record_fields[name]
    copy_fields.update(fields)
    return host_copy


def named_modules_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return the modules of `model.named_modules()` in the same order, mapped to their names.

    This avoids PyTorch's nested generators, which would run in every step.
    """
    names: dict[nn.Module, str] = {}
    unvisited_modules = [(model, "")]
    while unvisited_modules:
        module, name = unvisited_modules.pop()
        if module in names:
            continue
        names[module] = name
        children = module._modules
        if children:
            begin = f"{name}." if name else ""
            unvisited_modules += [
                (each, begin + key) for key, each in reversed(children.items()) if each is not None
            ]
    return names


def modules_of(model: nn.Module) -> Iterable[nn.Module]:
    """Return the modules of `model.modules()` in the same order."""
    return named_modules_of(model)
