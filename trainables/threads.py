"""Set the number of CPU threads of PyTorch for a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Run the block with `count` CPU threads in PyTorch and restore the former number afterwards.

    Small models on more threads than free cores are slower by a factor of tens, because threads wait for each
    other.
    """
    previous_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous_count)
