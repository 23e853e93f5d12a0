"""Tensors on the CPU that report the device CUDA, to find faults of GPU code without a GPU.

An operation on tensors of two devices fails, and a counter counts the waits of the host for the device. The
CPU computes values and gradients, and its generator replaces the device's. Kernels, random numbers, memory
and autocast of CUDA stay untested.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, Self, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

T = TypeVar("T")
GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
WAITING = frozenset(
    {"__bool__", "__float__", "__index__", "__int__", "cpu", "equal", "item", "masked_select", "nonzero"}
    | {"tolist", "unique", "unique_consecutive"}
)
"""Operations whose result the host needs, or whose shape depends on values."""
PACKING = frozenset({"_pack_padded_sequence", "_pad_packed_sequence"})
"""Operations that return values and their lengths; the lengths stay on the CPU."""
CROSSING = frozenset({"copy_", "to", "__get__", "__set__", "gru", "lstm", "rnn_relu", "rnn_tanh"} | PACKING)
"""Operations that accept tensors of both devices."""
STAND_INS: dict[str, Callable[..., Any]] = {
    "cuda.device": lambda _: nullcontext(),
    "cuda.get_rng_state": lambda _: torch.empty(0),
    "cuda.manual_seed": lambda _: None,
    "cuda.set_rng_state": lambda _state, _device: None,
    "backends.cudnn.is_acceptable": lambda _: False,
}
"""Replacements of functions of `torch` that need a CUDA device; it has no generator state to store."""


class OnGpu(Tensor):
    """A tensor on the pretended GPU."""


class PretendedGpu(TorchFunctionMode):
    """While this mode is active, `OnGpu` tensors behave as tensors of a CUDA device.

    Raises RuntimeError if an operation gets tensors of both devices, as CUDA does; CPU tensors without
    dimensions are allowed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        """Number of times that the host waited for the device, by operation."""

    def __enter__(self) -> Self:
        self._patches = ExitStack()
        for name, stand_in in STAND_INS.items():
            self._patches.enter_context(mock.patch(f"torch.{name}", stand_in))
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._patches.close()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func == Tensor.device.__get__:
            return GPU if isinstance(args[0], OnGpu) else CPU
        if func == Tensor.is_cuda.__get__:
            return isinstance(args[0], OnGpu)
        name = getattr(func, "__name__", str(func))
        if name == "pin_memory":
            return args[0]  # pinning needs a GPU; the tensor stays on the host
        leaves = list(_leaves((args, kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        devices = [torch.device(leaf) for leaf in leaves if _is_device(leaf)]
        is_on_gpu = any(isinstance(tensor, OnGpu) for tensor in tensors)
        if is_on_gpu and name not in CROSSING:
            _refuse_cpu_tensors(name, tensors)
            self.waits[name] += _waits(name, args, kwargs)
        if devices:
            is_on_gpu = devices[0].type == "cuda"
            args, kwargs = tree_map(lambda leaf: CPU if _is_device(leaf) else leaf, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            if name in PACKING:
                return _on_device(result[0], is_on_gpu), result[1]
            return _on_device(result, is_on_gpu and name != "cpu")


def on_gpu(x: T) -> T:
    """Move a tensor, or a module with all of its parameters and buffers, to the pretended GPU."""
    if isinstance(x, nn.Module):
        for module in x.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    data = parameter.detach().as_subclass(OnGpu)
                    module._parameters[name] = nn.Parameter(data, requires_grad=parameter.requires_grad)
            for name, buffer in list(module._buffers.items()):
                module._buffers[name] = None if buffer is None else buffer.as_subclass(OnGpu)
        return x
    assert isinstance(x, Tensor), f"tensors and modules can be moved, got {type(x).__name__}"
    return x.as_subclass(OnGpu)


def to_cpu(x: Tensor) -> Tensor:
    """Return a detached tensor on the CPU."""
    return x.detach().as_subclass(Tensor)


def _leaves(part: Any) -> Iterator[Any]:
    """Yield the leaves of arguments, much faster than PyTorch's own traversal."""
    if isinstance(part, (list, tuple)):
        for item in part:
            yield from _leaves(item)
    elif isinstance(part, dict):
        yield from _leaves(list(part.values()))
    else:
        yield part


def _is_device(leaf: object) -> bool:
    return isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.startswith(("cuda", "cpu")))


def _refuse_cpu_tensors(name: str, tensors: list[Tensor]) -> None:
    cpu_shapes = [tuple(tensor.shape) for tensor in tensors if tensor.dim() and not isinstance(tensor, OnGpu)]
    if cpu_shapes:
        raise RuntimeError(
            f"all tensors of {name} must be on one device, got some of {cpu_shapes} on the CPU"
        )


def _waits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name in ("__getitem__", "__setitem__"):
        return any(isinstance(leaf, Tensor) and leaf.dtype == torch.bool for leaf in _leaves(args[1]))
    if name == "repeat_interleave":
        repeats = kwargs.get("repeats", args[-1])
        return isinstance(repeats, Tensor) and kwargs.get("output_size") is None
    return name in WAITING


def _on_device(result: Any, is_on_gpu: bool) -> Any:
    if isinstance(result, Tensor):
        if isinstance(result, OnGpu) == is_on_gpu or type(result) is nn.Parameter:
            return result
        return result.as_subclass(OnGpu if is_on_gpu else Tensor)
    if isinstance(result, (list, tuple)):
        return tree_map(
            lambda leaf: _on_device(leaf, is_on_gpu) if isinstance(leaf, Tensor) else leaf, result
        )
    return result
