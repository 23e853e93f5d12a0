"""Uploads, waits for the device, and the base of autograd functions."""

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes, copy_to, refuse_host_read

_TORCH_APPLY: Any = vars(torch._C._FunctionBase)["apply"]


def copy_to_host(flags: Bool[Tensor, " U"]) -> Bool[np.ndarray, " U"]:
    """Copy boolean flags to the host; the host waits for the device."""
    refuse_host_read("flags")
    return np.asarray(flags.tolist(), dtype=bool)


def upload(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Copy a table to `device`; the host does not wait for the copy."""
    shapes = constant_shapes()
    return copy_to(table, device) if shapes is None else shapes.table(table, device)


class Function(torch.autograd.Function):
    """An autograd function that is called without the checks that only `vmap` needs.

    Inputs must not be tensors of finished `torch.func` transforms: `run` does not check for them. The check
    takes `apply` about as long as the rest of its work.
    """

    _apply_unchecked: ClassVar[Any]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls._apply_unchecked = _TORCH_APPLY.__get__(None, cls)

    @classmethod
    def run(cls, *value: Any) -> Any:
        """Return the result of `forward`."""
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*value)  # type: ignore[no-untyped-call]
        return cls._apply_unchecked(*value)
