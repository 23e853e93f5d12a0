"""Sums of probabilities are never taken in 16 bits."""

import torch


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """At least 32 bits: 1 - 0.999 has no digits left in half precision."""
    return torch.promote_types(dtype, torch.float32)
