"""Exponential moving average of the weights; where there is one, it is what is measured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.checkpoint import load_weights, weights


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in memory of their own."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def follow(average: Mapping[str, Tensor], model: nn.Module, decay: float) -> None:
    """Move `average` towards the weights of `model`: decay * average + (1 - decay) * weights."""
    present = weights(model)
    moving = [name for name, tensor in average.items() if tensor.is_floating_point()]
    move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    move([average[name] for name in moving], [present[name] for name in moving], 0)
    for name in average.keys() - {*moving}:
        average[name].copy_(present[name])


@contextmanager
def holding(model: nn.Module, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
    """`tensors` for weights of `model`, and afterwards its own again; None leaves it as it is."""
    if tensors is None:
        yield
        return
    own = copied(weights(model))
    load_weights(model, tensors, Path("held"))
    yield
    load_weights(model, own, Path("own"))
