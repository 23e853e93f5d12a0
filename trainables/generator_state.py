"""Global random generators of a process: seeded from the seed of a trial."""

import random
import sys
from typing import Final

from trainables.seeds import derive

STREAM: Final = "global"
SEEDS: Final = 2**32


def seed_generators(seed: int) -> None:
    random.seed(derive(seed, STREAM, "random"))
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(derive(seed, STREAM, "numpy") % SEEDS)
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(derive(seed, STREAM, "torch") % SEEDS)
