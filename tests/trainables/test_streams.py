"""Named random streams are reproducible and distinct."""

import numpy as np
import torch

from trainables.seeds import derive
from trainables.streams import numpy_stream, torch_stream


def test_seeds_equal_half_of_a_blake2b_digest() -> None:
    """The digest is 64-bit BLAKE2b of the parts joined by the unit separator, as printed by `b2sum -l 64`."""
    assert derive(0) == 0x842B7D9D43CDDF75 // 2
    assert derive(101, "data", 3) == 0x1C269F141F1EF71A // 2


def test_different_names_and_seeds_have_different_values() -> None:
    keys = [
        (seed, *name) for seed in range(4) for name in ((), ("a",), ("b",), ("a", 1), ("a", "b"), ("ab",))
    ]
    assert len({derive(*key) for key in keys}) == len(keys)


def test_streams_are_reproducible() -> None:
    assert np.array_equal(numpy_stream(1, "x").random(3), numpy_stream(1, "x").random(3))
    first, second = (torch.rand(3, generator=torch_stream(1, "x")) for _ in "12")
    assert torch.equal(first, second)
