"""Subnormal numbers are flushed to zero inside the context, and only there."""

import pytest
import torch

from trainables.layers.attention.subnormal import flush_subnormals, is_flushing

TINY = torch.tensor(1e-30)
SUPPORTED = torch.set_flush_denormal(False)
needs_support = pytest.mark.skipif(not SUPPORTED, reason="this processor cannot flush subnormal numbers")


@needs_support
def test_subnormal_products_are_zero_only_inside_the_context() -> None:
    assert not is_flushing()
    with flush_subnormals():
        assert is_flushing()
        assert TINY * 1e-10 == 0
    assert TINY * 1e-10 > 0
