"""The modules of a model, found without PyTorch's nested generators, which every step would pass through."""

from collections.abc import Iterable

from torch import nn


def named_modules_of(model: nn.Module) -> dict[nn.Module, str]:
    """What `model.named_modules()` goes through, in the same order, to its name."""
    found: dict[nn.Module, str] = {}
    waiting = [(model, "")]
    while waiting:
        module, name = waiting.pop()
        if module in found:
            continue
        found[module] = name
        children = module._modules
        if children:
            begin = f"{name}." if name else ""
            waiting += [(each, begin + key) for key, each in reversed(children.items()) if each is not None]
    return found


def modules_of(model: nn.Module) -> Iterable[nn.Module]:
    """What `model.modules()` goes through, in the same order."""
    return named_modules_of(model)
