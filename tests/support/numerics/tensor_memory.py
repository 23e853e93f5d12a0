"""Measure the peak memory of the tensors of a computation, as they are created and freed."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorMemory(TorchDispatchMode):
    """Counts bytes of every storage that an operator creates while the mode is active, until it is freed.

    A storage that several tensors share counts once. Earlier storages are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._finalizers: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        input_keys = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, Tensor) and _key(leaf) not in input_keys:
                self._add(leaf)
        return output

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = _key(tensor), storage.nbytes()
        if key in self._finalizers or not size:
            return
        self.now += size
        self.peak = max(self.peak, self.now)
        self._finalizers[key] = weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self.now -= size
        self._finalizers.pop(key, None)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def peak_bytes(run: Callable[[], object], *held_tensors: Tensor) -> int:
    """Return the peak bytes of tensors while `run()` runs, including `held_tensors`.

    On CUDA the allocator reports the peak; elsewhere the tensors are counted.
    """
    held_bytes = sum(tensor.nbytes for tensor in held_tensors)
    if held_tensors and held_tensors[0].is_cuda:
        torch.cuda.synchronize()
        bytes_before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return held_bytes + torch.cuda.max_memory_allocated() - bytes_before
    with TensorMemory() as memory:
        run()
    return held_bytes + memory.peak
