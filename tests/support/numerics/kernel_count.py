"""Count kernels, copies, host synchronisations and bytes of a computation while it runs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.layers import head_rows

COPIES: Final = ("_to_copy", "clone", "copy_")
WAITS: Final = (
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
)
"""Operators that return a number or a size to the host, which waits for it."""
ALLOCATIONS: Final = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
INDEXING: Final = ("index", "index_put", "index_put_")


@dataclass
class DeviceCounts:
    """Counts of one computation."""

    kernels: int = 0
    """Operators that compute or move data; views and empty allocations do not count."""
    copies: int = 0
    """Kernels that only copy."""
    waits: int = 0
    """Number of times that the host would wait for a CUDA device."""
    bytes: int = 0
    """Bytes that kernels read and write."""
    by_name: Counter[str] = field(default_factory=Counter)
    """Kernels by operator."""
    waits_by_name: Counter[str] = field(default_factory=Counter)


class _CountingMode(TorchDispatchMode):
    """Counts every operator that runs while the mode is active, also in a backward pass."""

    def __init__(self, counts: DeviceCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        name = func._overloadpacket.__name__
        if _waits(name, args, kwargs or {}):
            self.counts.waits += 1
            self.counts.waits_by_name[name] += 1
        # Multi-tensor operators that change their arguments return nothing.
        if (
            (outputs or func._schema.is_mutable)
            and not _is_view(func, inputs, outputs)
            and name not in ALLOCATIONS
        ):
            self.counts.kernels += 1
            self.counts.by_name[name] += 1
            self.counts.copies += name in COPIES
            self.counts.bytes += sum(tensor.numel() * tensor.itemsize for tensor in (*inputs, *outputs))
        return result


def count_kernels(run: Callable[[], object]) -> DeviceCounts:
    """Count the work of one call of `run` for a device; most counts are the same on a CPU.

    All rows are processed at once, as on a GPU.
    """
    counts, tolist = DeviceCounts(), Tensor.tolist

    def counted_tolist(tensor: Tensor) -> Any:
        counts.waits += 1
        counts.waits_by_name["tolist"] += 1
        return tolist(tensor)

    # On a CPU `tolist` dispatches no operator.
    Tensor.tolist = counted_tolist
    try:
        with mock.patch.object(head_rows, "kernels_are_cheap", return_value=False), _CountingMode(counts):
            run()
    finally:
        Tensor.tolist = tolist
    return counts


def _is_view(func: Any, inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    """Return whether all outputs are memory of the inputs, and the inputs are unchanged."""
    if func._schema.is_mutable:
        return False
    input_storages = {tensor.untyped_storage()._cdata for tensor in inputs}
    return all(tensor.untyped_storage()._cdata in input_storages for tensor in outputs)


def _waits(name: str, args: Any, keywords: dict[str, Any]) -> bool:
    if name == "repeat_interleave":
        return keywords.get("output_size") is None
    if name in INDEXING:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return name in WAITS
