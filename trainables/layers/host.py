"""The host's part of a step: what it does hundreds of times with little work, and what it waits for."""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor, nn

from trainables.layers.constant_shapes import constant_shapes, copied_to, refuse_host_read

_FROM_TORCH: Any = vars(torch._C._FunctionBase)["apply"]
Record = TypeVar("Record")


def on_host(flags: Bool[Tensor, " U"]) -> Bool[np.ndarray, " U"]:
    """The same truth values where the host can read them: it waits for the device."""
    refuse_host_read("flags")
    return np.asarray(flags.tolist(), dtype=bool)


def uploaded(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """The same numbers on `device`; the host does not wait until they are there."""
    shapes = constant_shapes()
    return copied_to(table, device) if shapes is None else shapes.table(table, device)


class Function(torch.autograd.Function):
    """A function with gradients of its own, called without the checks that only functions for `vmap` need.

    It is given no tensors of transforms of `torch.func` that are over: `run` does not look for them, which
    takes `apply` about as long as everything else that it does.
    """

    _at_once: ClassVar[Any]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls._at_once = _FROM_TORCH.__get__(None, cls)

    @classmethod
    def run(cls, *given: Any) -> Any:
        """The result for what `forward` is `given`."""
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*given)  # type: ignore[no-untyped-call]
        return cls._at_once(*given)


def changed(record: Record, **fields: Any) -> Record:
    """`dataclasses.replace` in a third of its time, as passes make hundreds of records in a step.

    Of frozen dataclasses that check and derive nothing when they are made; what `cached_property` keeps is
    left behind.
    """
    found = object.__new__(type(record))
    given, own = record.__dict__, found.__dict__
    for name in record.__dataclass_fields__:  # type: ignore[attr-defined]
        own[name] = given[name]
    own.update(fields)
    return found


def named_modules_of(model: nn.Module) -> dict[nn.Module, str]:
    """What `model.named_modules()` goes through, in the same order, to its name.

    Without PyTorch's nested generators, which every step would pass through.
    """
    found: dict[nn.Module, str] = {}
    waiting = [(model, "")]
    while waiting:
        module, name = waiting.pop()
        if module in found:
            continue
        found[module] = name
        children = module._modules
        if children:
            begin = f"{name}." if name else ""
            waiting += [(each, begin + key) for key, each in reversed(children.items()) if each is not None]
    return found


def modules_of(model: nn.Module) -> Iterable[nn.Module]:
    """What `model.modules()` goes through, in the same order."""
    return named_modules_of(model)
