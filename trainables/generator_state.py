"""Global random generators of a process: seeded from the seed of a trial."""

import random
import sys
from typing import Final

from trainables.seeds import derive

STREAM: Final = "global"
"""First part of the names of the streams that seed global generators."""
SEEDS: Final = 2**32
"""NumPy takes seeds below it."""


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python and, where they are loaded, of NumPy and PyTorch."""
    random.seed(derive(seed, STREAM, "random"))
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(derive(seed, STREAM, "numpy") % SEEDS)  # noqa: NPY002 - the global generator is meant
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(derive(seed, STREAM, "torch") % SEEDS)
