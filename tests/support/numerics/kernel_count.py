"""What a computation asks of a device: kernels, copies, waits of the host and bytes, counted as it runs."""

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
"""Operators that hand the host a number or a size."""
UNFILLED: Final = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
INDEXING: Final = ("index", "index_put", "index_put_")


@dataclass
class DeviceCounts:
    """Of one computation."""

    kernels: int = 0
    """Operators that compute or move something: neither views nor memory without values."""
    copies: int = 0
    """Kernels among them that compute nothing."""
    waits: int = 0
    """How often the host would wait for a CUDA device."""
    bytes: int = 0
    """Read and written by kernels."""
    by_name: Counter[str] = field(default_factory=Counter)
    """Kernels by operator."""
    waits_by_name: Counter[str] = field(default_factory=Counter)


class _Counting(TorchDispatchMode):
    """Every operator that runs while this is on, of a backward pass too."""

    def __init__(self, counts: DeviceCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        name = func._overloadpacket.__name__
        if _waits(name, args, kwargs or {}):
            self.counts.waits += 1
            self.counts.waits_by_name[name] += 1
        # Multi-tensor operators that change what they are given make nothing.
        if (made or func._schema.is_mutable) and not _is_view(func, given, made) and name not in UNFILLED:
            self.counts.kernels += 1
            self.counts.by_name[name] += 1
            self.counts.copies += name in COPIES
            self.counts.bytes += sum(each.numel() * each.itemsize for each in (*given, *made))
        return found


def counted(run: Callable[[], object]) -> DeviceCounts:
    """What one call of `run` asks of a device. What does not depend on the device is the same on a CPU.

    All rows are worked on at once, as on a GPU.
    """
    counts, tolist = DeviceCounts(), Tensor.tolist

    def listed(tensor: Tensor) -> Any:
        counts.waits += 1
        counts.waits_by_name["tolist"] += 1
        return tolist(tensor)

    # On a CPU a list is made without any operator.
    Tensor.tolist = listed
    try:
        with mock.patch.object(head_rows, "kernels_are_cheap", return_value=False), _Counting(counts):
            run()
    finally:
        Tensor.tolist = tolist
    return counts


def _is_view(func: Any, given: list[Tensor], made: list[Tensor]) -> bool:
    """Whether all that was made is memory that was given, left as it was."""
    if func._schema.is_mutable:
        return False
    known = {each.untyped_storage()._cdata for each in given}
    return all(each.untyped_storage()._cdata in known for each in made)


def _waits(name: str, args: Any, keywords: dict[str, Any]) -> bool:
    if name == "repeat_interleave":
        return keywords.get("output_size") is None
    if name in INDEXING:
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    return name in WAITS
