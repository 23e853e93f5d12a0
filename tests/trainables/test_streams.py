"""Named random streams are reproducible, distinct, and independent of global generators."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.seeds import derive
from trainables.streams import numpy_stream, torch_stream

NAMES = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 5)), max_size=3)


@given(seed=st.integers(0, 2**63 - 1), name=NAMES)
def test_seed_is_valid_for_every_generator(seed: int, name: list[str | int]) -> None:
    assert 0 <= derive(seed, *name) < 2**63
    torch_stream(seed, *name)
    numpy_stream(seed, *name)


def test_seeds_equal_half_of_a_blake2b_digest() -> None:
    """The digest is 64-bit BLAKE2b of the parts joined by the unit separator, as printed by `b2sum -l 64`."""
    assert derive(0) == 0x842B7D9D43CDDF75 // 2
    assert derive(101, "data", 3) == 0x1C269F141F1EF71A // 2


def test_different_names_and_seeds_have_different_values() -> None:
    keys = [
        (seed, *name) for seed in range(4) for name in ((), ("a",), ("b",), ("a", 1), ("a", "b"), ("ab",))
    ]
    assert len({derive(*key) for key in keys}) == len(keys)


def test_streams_do_not_use_global_generators() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = torch.rand(3, generator=torch_stream(1, "x"))
    torch.rand(7)
    second = torch.rand(3, generator=torch_stream(1, "x"))
    torch.manual_seed(5)
    torch_stream(1, "x")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert np.array_equal(numpy_stream(1, "x").random(3), numpy_stream(1, "x").random(3))
