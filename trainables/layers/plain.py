"""Modules that draw from PyTorch's global generator: PyTorch's own, and those of users.

Ours draw from named streams (`layers.linear`, `layers.dropout`). For the others the global generator is given
such a stream as long as they draw from it, and is afterwards as it was before.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from trainables.layers.constant_shapes import constant_shapes
from trainables.layers.dropout import Keyed
from trainables.layers.linear import Initialised
from trainables.seeds import derive

OURS: Final = __name__.partition(".")[0]
CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Modules of PyTorch's that compute and draw nothing themselves."""


def is_plain(module: nn.Module) -> bool:
    """Whether `module` may draw from the global generator, when it is made or when it runs."""
    if isinstance(module, Initialised) or type(module) in CONTAINERS:
        return False
    if type(module).__module__.partition(".")[0] != OURS:
        return True
    # What `parameters(recurse=False)` gives, in a tenth of the time: plans ask for thousands of modules.
    holds = (*module._parameters.values(), *module._buffers.values())
    return any(each is not None for each in holds) or hasattr(module, "reset_parameters")


def has_plain(model: nn.Module) -> bool:
    """Whether any module of `model` is plain."""
    return any(is_plain(module) for module in model.modules())


def reset(module: nn.Module) -> bool:
    """Let a plain module draw its parameters anew; False if it has no method for it."""
    for name in ("reset_parameters", "_reset_parameters"):
        if callable(draw := getattr(module, name, None)):
            draw()
            return True
    return False


@contextmanager
def global_stream(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, PyTorch's global generators of the CPU and of `device` are those of `seed`."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for each in devices:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def evaluation_stream(model: nn.Module, seed: int) -> Iterator[None]:
    """Inside, what plain modules of `model` draw while it is evaluated is of `seed`.

    It begins anew each time: the same weights on the same split measure the same, now and read again.
    """
    if not draws_globally(model):
        yield
        return
    with global_stream(derive(seed, "evaluation"), next(model.parameters()).device):
        yield


def draws_globally(model: nn.Module) -> bool:
    """Whether modules of `model` may draw from the global generator in a forward pass."""
    return any(isinstance(module, GlobalStream) for module in model.children())


class GlobalStream(Keyed):
    """Gives the global generator a stream of its own in each forward pass of a model in training."""

    by_place = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._open = ExitStack()
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end, always_call=True)

    def _begin(self, model: nn.Module, _: Any) -> None:
        # A captured pass has the generator seeded before it.
        if model.training and self._stream is not None and constant_shapes() is None:
            key, device = self.draw(), next(model.parameters()).device
            assert isinstance(key, int), "modules that draw from the global generator are of one model"
            self._open.enter_context(global_stream(key, device))

    def _end(self, *_: Any) -> None:
        self._open.close()
