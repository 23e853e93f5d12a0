"""Run modules that draw from PyTorch's global generator: PyTorch's own modules and custom modules.

Built-in modules draw from named streams (`layers.linear`, `layers.dropout`). For the others, the global
generator is seeded from such a stream while they draw, and is restored afterwards.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from trainables.layers.constant_shapes import constant_shapes
from trainables.layers.dropout import KeyedModule
from trainables.layers.linear import Initialised
from trainables.seeds import derive

OWN_PACKAGE: Final = __name__.partition(".")[0]
CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""PyTorch modules that compute and draw nothing themselves."""


def draws_from_global_generator(module: nn.Module) -> bool:
    """Return whether `module` may draw from the global generator when it is built or run."""
    if isinstance(module, Initialised) or type(module) in CONTAINERS:
        return False
    if type(module).__module__.partition(".")[0] != OWN_PACKAGE:
        return True
    # Equivalent to `parameters(recurse=False)` and `buffers(recurse=False)` in a tenth of the time; a plan
    # checks thousands of modules.
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(attribute is not None for attribute in tensors) or hasattr(module, "reset_parameters")


def uses_global_generator(model: nn.Module) -> bool:
    """Return whether `draws_from_global_generator` holds for any module of `model`."""
    return any(draws_from_global_generator(module) for module in model.modules())


def redraw_parameters(module: nn.Module) -> bool:
    """Redraw the parameters of a plain module; return False if it has no method for this."""
    for name in ("reset_parameters", "_reset_parameters"):
        if callable(draw := getattr(module, name, None)):
            draw()
            return True
    return False


@contextmanager
def global_stream(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed PyTorch's global generators of the CPU and of `device` by `seed` within the context."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for cuda_device in devices:
            with torch.cuda.device(cuda_device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def evaluation_stream(model: nn.Module, seed: int) -> Iterator[None]:
    """Seed the global generators from `seed` while `model` is evaluated, if its modules draw from them.

    The stream restarts each time, so that the same weights on the same split give the same measurement in
    every evaluation.
    """
    if not draws_globally(model):
        yield
        return
    with global_stream(derive(seed, "evaluation"), next(model.parameters()).device):
        yield


def draws_globally(model: nn.Module) -> bool:
    """Return whether modules of `model` may draw from the global generator in a forward pass."""
    return any(isinstance(module, GlobalStream) for module in model.children())


class GlobalStream(KeyedModule):
    """A module that seeds the global generator for each forward pass of a model in training mode."""

    draws_by_place = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._open_contexts = ExitStack()
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end, always_call=True)

    def _begin(self, model: nn.Module, _: Any) -> None:
        # For a captured pass the generator is seeded beforehand.
        if model.training and self._stream is not None and constant_shapes() is None:
            key, device = self.draw(), next(model.parameters()).device
            assert isinstance(key, int), "modules that draw from the global generator must not be captured"
            self._open_contexts.enter_context(global_stream(key, device))

    def _end(self, *_: Any) -> None:
        self._open_contexts.close()
