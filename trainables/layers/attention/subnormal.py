"""Arithmetic that flushes subnormal numbers to zero.

A CPU multiplies subnormal numbers (below 1.2e-38 in 32 bits) tens of times slower than others. Products of
many probabilities, and their gradients, contain many of them. Added to larger numbers they are lost in
rounding.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flush_subnormals() -> Iterator[None]:
    """Flush subnormal numbers to zero in this thread within the context; restore the setting afterwards.

    This has no effect on processors that do not support it, in helper threads, and on a GPU.
    """
    was_flushing = is_flushing()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushing)


def is_flushing() -> bool:
    """Return whether this thread flushes subnormal numbers; PyTorch can set this but not report it."""
    return sys.float_info.min * sys.float_info.epsilon == 0
