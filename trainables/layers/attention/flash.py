"""FlashAttention for rows of different lengths: the available kernels and their supported inputs.

The CUDA wheels of PyTorch contain FlashAttention 2 (`aten::_flash_attention_forward`), with dropout and a
gradient. The operator is private, so it is used only if its schema is the known one. The package flash-attn
is preferred if it is installed. Its successor `flash_attn.cute` does not support dropout of weights.

Legend: M packed queries and L packed keys of B rows, H heads of width E.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.backends.cuda import is_flash_attention_available

SCHEMA: Final = (
    "query",
    "key",
    "value",
    "cum_seq_q",
    "cum_seq_k",
    "max_q",
    "max_k",
    "dropout_p",
    "is_causal",
    "return_debug_mask",
)
"""Positional arguments of PyTorch's operator."""
PYTORCH_KERNEL: Final = "FlashAttention 2 of PyTorch"
NO_KERNEL_ERROR: Final = (
    "PyTorch has no FlashAttention kernel with the known arguments and flash-attn is not installed;"
    " pip install 'haltsweep[flash]', or choose auto or sdpa"
)


class PackedRows(NamedTuple):
    """Arguments of one call of a kernel."""

    q: Float[Tensor, "M H E"]
    k: Float[Tensor, "L H E"]
    v: Float[Tensor, "L H E"]
    starts: tuple[Int[Tensor, " B_1"], Int[Tensor, " B_1"]]
    """32-bit starts of each row of queries and of keys, and the end of the last row."""
    widths: tuple[int, int]
    """Largest number of queries and of keys in a row."""
    causal: bool
    rate: float
    """Share of weights that are dropped."""


@dataclass(frozen=True)
class FlashKernel:
    """A kernel and the inputs that it and its gradient accept."""

    name: str
    run: Callable[[PackedRows], Tensor]
    supports_dropout: bool
    """Whether the kernel supports dropout of weights."""
    capability: int
    """Lowest major compute capability of a GPU that the kernel supports."""
    width_step: int
    """Divisor of the supported head widths."""
    width_max: int

    def fault(self, width: int, capability: int | None, *, has_dropout: bool) -> str | None:
        """Return the reason why the kernel cannot run, with a remedy; None if it can.

        Args:
            width: Size of one head.
            capability: Major compute capability of the GPU; None if it is not known.
            has_dropout: Whether attention weights are dropped.
        """
        if capability is not None and capability < self.capability:
            requirement = f"needs a GPU of compute capability {self.capability}.0 or more, got {capability}.x"
        elif width % self.width_step or width > self.width_max:
            steps = f" in steps of {self.width_step}" if self.width_step > 1 else ""
            requirement = f"takes heads up to {self.width_max} wide{steps}, got {width}"
        elif has_dropout and not self.supports_dropout:
            return (
                f"{self.name} cannot drop attention weights; set attention_dropout: 0, or choose auto or sdpa"
            )
        else:
            return None
        return f"{self.name} {requirement}; choose auto or sdpa"


@cache
def flash_kernels() -> tuple[FlashKernel, ...]:
    """Return the kernels of this installation, the preferred one first.

    Limits of the packages are those that flash-attn 2.8 and flash-attn-4 4.0.0b36 document or assert.
    """
    kernels = []
    if (run := _import_function("flash_attn")) is not None:
        call = _package_call(run)
        kernels.append(
            FlashKernel(
                "flash-attn 2", call, supports_dropout=True, capability=8, width_step=1, width_max=256
            )
        )
    if (run := _import_function("flash_attn.cute")) is not None:
        call = _package_call(run)
        kernels.append(
            FlashKernel(
                "flash_attn.cute", call, supports_dropout=False, capability=9, width_step=8, width_max=128
            )
        )
    if schema_is_known() and (not torch.cuda.is_available() or is_flash_attention_available()):
        # Gradients of wider heads are not supported on some GPUs of capability 8.
        kernels.append(
            FlashKernel(
                PYTORCH_KERNEL, _run_pytorch, supports_dropout=True, capability=8, width_step=8, width_max=192
            )
        )
    return tuple(kernels)


def usable_kernel(width: int, capability: int | None, *, has_dropout: bool) -> FlashKernel | str:
    """Return the first kernel that can run, or the reason why none can, with a remedy.

    Args:
        width: Size of one head.
        capability: Major compute capability of the GPU; None if it is not known.
        has_dropout: Whether attention weights are dropped.
    """
    faults = []
    for kernel in flash_kernels():
        fault = kernel.fault(width, capability, has_dropout=has_dropout)
        if fault is None:
            return kernel
        faults.append(fault)
    return faults[0] if faults else NO_KERNEL_ERROR


def schema_is_known() -> bool:
    """Return whether PyTorch's operator has the arguments in `SCHEMA` and defaults for all other ones."""
    operator = getattr(torch.ops.aten, "_flash_attention_forward", None)
    if operator is None:
        return False
    arguments = operator.default._schema.arguments
    required_arguments = tuple(argument.name for argument in arguments if not argument.has_default_value())
    return required_arguments == SCHEMA == tuple(argument.name for argument in arguments[: len(SCHEMA)])


def _import_function(module: str) -> Callable[..., Any] | None:
    try:
        if importlib.util.find_spec(module) is None:
            return None
        run: Callable[..., Any] | None = getattr(
            importlib.import_module(module), "flash_attn_varlen_func", None
        )
    except ImportError:  # not installed, or not supported on this machine
        return None
    return run


def _package_call(run: Callable[..., Any]) -> Callable[[PackedRows], Tensor]:
    def call(rows: PackedRows) -> Tensor:
        dropout_options = {"dropout_p": rows.rate} if rows.rate else {}
        result: Tensor | tuple[Tensor, ...] = run(
            rows.q,
            rows.k,
            rows.v,
            cu_seqlens_q=rows.starts[0],
            cu_seqlens_k=rows.starts[1],
            max_seqlen_q=rows.widths[0],
            max_seqlen_k=rows.widths[1],
            causal=rows.causal,
            **dropout_options,
        )
        # The newer package also returns the log-sum-exp.
        return result if isinstance(result, Tensor) else result[0]

    return call


def _run_pytorch(rows: PackedRows) -> Tensor:
    result: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
        rows.q,
        rows.k,
        rows.v,
        *rows.starts,
        *rows.widths,
        dropout_p=rows.rate,
        is_causal=rows.causal,
        return_debug_mask=False,
    )
    return result[0]
