"""Sets the number of CPU threads of PyTorch for a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """PyTorch on `count` CPU threads, and afterwards on as many as before.

    Small models on more threads than free cores are slower by a factor of tens: threads wait for each other.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
