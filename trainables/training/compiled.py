"""Whether the steps of a trial are compiled."""

from typing import Final

from trainables.assembly import compiling_pays, uncompiled
from trainables.settings import Settings
from trainables.training.config import TrainConfig

LONG_ENOUGH: Final = 5_000
"""Fewest steps of a training that `auto` compiles. On an H200 compiling took 9 s of a transformer and saved
1.9 ms a step, 24 s of a temporal latent bottleneck and saved 11 ms, 26 and 20 s of the Neural Data Router
and of CRvNN and saved 17 and 21 ms: repaid after 4,800, 2,100, 1,500 and 950 steps. At width 64, on an H100,
compiled steps of the first two took 1.1 to 1.25 times as long: calling a region costs the host more than
launching its kernels one by one.
"""


def compiled(model: Settings, config: TrainConfig, device: str) -> bool:
    """Whether layers of `model` are compiled when it is trained on `device`.

    Raises ValueError if they are to be and cannot.
    """
    why = uncompiled(model) if config.compile is not False else None
    if config.compile is True and why is not None:
        raise ValueError(f"train.compile {why}")
    if config.compile == "auto":
        can = why is None and not config.checkpoint_activations
        return can and config.steps >= LONG_ENOUGH and compiling_pays(model) and device == "cuda"
    return config.compile
