"""Uploads, waits for the device, and the base of autograd functions."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from trainables.layers.constant_shapes import constant_shapes, copy_to, refuse_host_read


def copy_to_host(flags: Bool[Tensor, " U"]) -> Bool[np.ndarray, " U"]:
    """Copy boolean flags to the host; the host waits for the device."""
    refuse_host_read("flags")
    return np.asarray(flags.tolist(), dtype=bool)


def upload(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Copy a table to `device`; the host does not wait for the copy."""
    shapes = constant_shapes()
    return copy_to(table, device) if shapes is None else shapes.table(table, device)


class Function(torch.autograd.Function):
    """An autograd function whose results are not typed."""

    @classmethod
    def run(cls, *value: Any) -> Any:
        """Return the result of `forward`."""
        return cls.apply(*value)  # type: ignore[no-untyped-call]
