"""Numbers too small for full precision are zero inside, and only there."""

import pytest
import torch

from trainables.layers.attention.subnormal import flushed, flushes

SMALL = torch.tensor(1e-30)
SUPPORTED = torch.set_flush_denormal(False)
needs_support = pytest.mark.skipif(not SUPPORTED, reason="this processor cannot flush them")


@needs_support
def test_products_are_zero_inside_and_as_before_afterwards() -> None:
    assert not flushes()
    with flushed():
        assert flushes()
        assert SMALL * 1e-10 == 0
    assert SMALL * 1e-10 > 0


@needs_support
def test_who_flushes_already_goes_on_doing_so() -> None:
    torch.set_flush_denormal(True)
    try:
        with flushed():
            pass
        assert flushes()
    finally:
        torch.set_flush_denormal(False)


def test_an_error_inside_leaves_it_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), flushed():
        _ = 1 / 0
    assert not flushes()
