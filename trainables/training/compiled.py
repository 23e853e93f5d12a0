"""Whether the steps of a trial are compiled."""

from typing import Final

from trainables.assembly import uncompiled
from trainables.settings import Settings
from trainables.training.config import TrainConfig

LONG_ENOUGH: Final = 5_000
"""Fewest steps of a training that `auto` compiles. An estimate: a minute of compiling is 12 ms a step."""


def compiled(model: Settings, config: TrainConfig, device: str) -> bool:
    """Whether layers of `model` are compiled when it is trained on `device`.

    Raises ValueError if they are to be and cannot.
    """
    why = uncompiled(model) if config.compile is not False else None
    if config.compile is True and why is not None:
        raise ValueError(f"train.compile {why}")
    if config.compile == "auto":
        can = why is None and not config.checkpoint_activations
        return can and device == "cuda" and config.steps >= LONG_ENOUGH
    return config.compile
