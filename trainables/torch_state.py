"""What PyTorch keeps for all of a process, put back after a trial whose code may have set it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

UNREADABLE: Final = object()
"""Of a precision that was set by the older and the newer of its two names: reading either raises."""


Access = tuple[Callable[[], Any], Callable[[Any], Any]]
"""How a thing is read and set."""


def _attribute(module: Any, name: str) -> Access:
    return lambda: getattr(module, name), lambda value: setattr(module, name, value)


def _precisions() -> Iterator[Access]:
    """The older names first: what they set, the newer ones read."""
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    newer = (torch.backends, cuda, cudnn, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None))
    if all(hasattr(module, "fp32_precision") for module in newer):
        yield from (_attribute(module, "fp32_precision") for module in newer)
    else:
        yield from (_attribute(module, "allow_tf32") for module in (cuda, cudnn))


_KEPT: Final[tuple[Access, ...]] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    *_precisions(),
)


@contextmanager
def torch_state(seed: int) -> Iterator[None]:
    """Inside, the global generators (CUDA's too) start from `seed`; after it, all is as it was before.

    That is default dtype and device, threads, grad mode, deterministic and precision flags, generators of the
    CPU and, where CUDA runs already, of its devices.
    """
    values = [_read(read) for read, _ in _KEPT]
    device = torch.get_default_device()
    running: Any = torch.cuda  # whose functions say nothing of their types
    devices = list(range(running.device_count())) if running.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            for (read, put), value in zip(_KEPT, values, strict=True):
                if value is not UNREADABLE and _read(read) != value:
                    put(value)
            if torch.get_default_device() != device:
                torch.set_default_device(None)
                if torch.get_default_device() != device:
                    torch.set_default_device(device)


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        return UNREADABLE
