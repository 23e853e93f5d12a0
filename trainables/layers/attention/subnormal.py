"""Arithmetic that takes numbers too small for full precision as zero.

A CPU multiplies these (below 1.2e-38 in 32 bits) tens of times slower than others. Products of many
probabilities, and gradients through them, are full of such numbers; added to any that matter they are lost in
rounding.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed() -> Iterator[None]:
    """Inside, this thread takes such numbers as zero; as before afterwards.

    Without effect where the processor cannot do so, in threads that help this one, and on a GPU.
    """
    before = flushes()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flushes() -> bool:
    """Whether this thread does so now. PyTorch can set it and not tell it."""
    return sys.float_info.min * sys.float_info.epsilon == 0
