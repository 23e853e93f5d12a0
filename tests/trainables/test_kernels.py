"""A training step launches no more kernels, and makes the host wait no more often, than it did."""

import argparse

import pytest
import torch

from tests.benchmarks import kernels, systems
from tests.support.numerics.kernel_count import counted
from trainables.types import Batch

LENGTHS = (30, 17, 3, 24, 2, 9)
"""Caps on layers make rows leave at depths that no rounding changes."""
OPTIONS = argparse.Namespace(width=16, heads=2, bound=7)
SLACK = 1.05
BOUNDS: dict[tuple[str, str], tuple[int, int, int]] = {
    ("gut", "compact"): (1106, 16, 10),
    ("gut", "none"): (1122, 19, 1),
    ("ut", "compact"): (1104, 22, 10),
    ("ut", "none"): (1035, 26, 1),
    ("gutlb", "compact"): (2768, 32, 17),
    ("gutlb", "none"): (2872, 42, 1),
    ("looped", "-"): (375, 2, 1),
    ("ndr", "-"): (1269, 66, 1),
    ("sut", "compact"): (2678, 14, 22),
    ("sut", "none"): (2714, 21, 15),
    ("crvnn", "compact"): (1947, 22, 9),
    ("crvnn", "none"): (7298, 66, 1),
    ("tlb", "-"): (644, 12, 1),
    ("transformer", "-"): (478, 10, 1),
}
"""System and early exit to the most kernels, copies and waits of the host."""


def batch() -> Batch:
    stream, width = torch.Generator().manual_seed(1), max(LENGTHS)
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randint(0, 15, mask.shape, generator=stream).masked_fill(~mask, systems.SHAPE.pad_id)
    return Batch(tokens, mask, torch.randint(0, 10, (len(LENGTHS),), generator=stream))


CASES = {
    (label, mode): full
    for label, raw in systems.systems().items()
    for (dropout, mode), full in kernels.cases(raw, OPTIONS).items()
    if dropout == "on" and mode != "batch"
}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_step_asks_no_more_of_the_device_than_it_did(case: tuple[str, str]) -> None:
    model = kernels.built(CASES[case])
    passes = kernels.passes(model, batch())
    passes()
    model.zero_grad()
    counts = counted(passes)
    found = (counts.kernels, counts.copies, counts.waits)
    assert case in BOUNDS, f"a new system must have bounds: write {case}: {found} into BOUNDS"
    bounds = BOUNDS[case]
    assert all(one <= bound for one, bound in zip(found, bounds, strict=True)), (found, counts.by_name)
    assert bounds[0] <= SLACK * found[0], f"lower the bound to {found}"


def test_every_system_has_bounds() -> None:
    assert BOUNDS.keys() == CASES.keys()
