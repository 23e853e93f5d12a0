"""How much memory the tensors of a computation take at its worst, counted as they are made and freed."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorMemory(TorchDispatchMode):
    """Bytes of every storage that an operator makes while this is on, as long as it lives.

    A storage that several tensors share counts once. What existed before is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        before = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and _key(leaf) not in before:
                self._born(leaf)
        return out

    def _born(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = _key(tensor), storage.nbytes()
        if key in self._seen or not size:
            return
        self.now += size
        self.peak = max(self.peak, self.now)
        self._seen[key] = weakref.finalize(storage, self._died, key, size)

    def _died(self, key: int, size: int) -> None:
        self.now -= size
        self._seen.pop(key, None)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def peak_bytes(run: Callable[[], object], *held: Tensor) -> int:
    """Peak bytes of tensors while `run()` works, those of `held` included.

    On CUDA this is what the allocator says; elsewhere tensors are counted.
    """
    standing = sum(tensor.nbytes for tensor in held)
    if held and held[0].is_cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return standing + torch.cuda.max_memory_allocated() - before
    with TensorMemory() as memory:
        run()
    return standing + memory.peak
