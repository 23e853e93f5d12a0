"""The modules of a model, found without PyTorch's nested generators, which every step would pass through."""

from collections.abc import Iterator

from torch import nn


def named_modules_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """What `model.named_modules()` goes through, in the same order."""
    found: list[tuple[str, nn.Module]] = []
    seen: set[int] = set()
    waiting = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append((name, module))
        if children := module._modules:
            begin = f"{name}." if name else ""
            waiting += [(begin + key, each) for key, each in reversed(children.items()) if each is not None]
    return found


def modules_of(model: nn.Module) -> list[nn.Module]:
    """What `model.modules()` goes through, in the same order."""
    return [module for _, module in named_modules_of(model)]


def parameters_of(model: nn.Module) -> Iterator[nn.Parameter]:
    """What `model.parameters()` goes through, in the same order; what is shared, as often as it is used."""
    for module in modules_of(model):
        for weight in module._parameters.values():
            if weight is not None:
                yield weight
