"""Create named random streams whose numbers depend only on the seed and the name, not on other draws.

A trial never uses a global generator. Data order, initial weights and dropout each have a separate stream, so
that removing a component in one arm does not shift the random numbers of the remaining components.
"""

import numpy as np
import torch

from trainables.seeds import derive


def torch_stream(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh torch generator on `device` for the stream `name`."""
    return torch.Generator(device=device).manual_seed(derive(seed, *name))


def numpy_stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return a fresh NumPy generator (PCG64) for the stream `name`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *name)))
