"""Named random streams: the same seed and name give the same numbers in every arm, whatever else is drawn.

A trial never touches a global generator. Data order, initial weights and dropout each have a stream of their
own, so that removing a component in one arm does not shift the random numbers of what is left.
"""

import numpy as np
import torch

from trainables.seeds import derive


def torch_stream(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh torch generator on `device` for the stream `name`."""
    return torch.Generator(device=device).manual_seed(derive(seed, *name))


def numpy_stream(seed: int, *name: str | int) -> np.random.Generator:
    """A fresh NumPy generator (PCG64) for the stream `name`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *name)))
