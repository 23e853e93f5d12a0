"""Upper bounds of the kernels, copies, uploads and host waits of a training step."""

import argparse

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.benchmarks import kernels, systems
from tests.support.numerics.kernel_count import count_kernels
from trainables.layers import host
from trainables.layers.constant_shapes import copy_to
from trainables.types import Batch

LENGTHS = (30, 17, 3, 24, 2, 9)
"""Limits on layers make rows halt at depths that rounding does not change."""
OPTIONS = argparse.Namespace(width=16, heads=2, bound=7)
TOLERANCE = 1.05
BOUNDS: dict[tuple[str, str], tuple[int, int, int, int]] = {
    ("gut", "compact"): (1373, 69, 10, 46),
    ("gut", "none"): (1300, 65, 1, 16),
    ("ut", "compact"): (1380, 76, 10, 59),
    ("ut", "none"): (1197, 72, 1, 16),
    ("gutlb", "compact"): (3379, 155, 17, 108),
    ("gutlb", "none"): (3357, 151, 1, 62),
    ("looped", "-"): (401, 4, 1, 9),
    ("ndr", "-"): (1328, 68, 1, 13),
    ("sut", "compact"): (2846, 25, 22, 22),
    ("sut", "none"): (2871, 25, 15, 16),
    ("crvnn", "compact"): (2006, 24, 9, 24),
    ("crvnn", "none"): (7401, 68, 1, 50),
    ("tlb", "-"): (819, 43, 1, 50),
    ("transformer", "-"): (624, 48, 1, 16),
}
"""By model and early exit: most kernels, copies, host waits and uploads."""


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
def test_training_step_keeps_within_its_bounds(
    case: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[int] = []

    def upload(table: np.ndarray, device: torch.device) -> Tensor:
        uploads.append(table.nbytes)
        return copy_to(table, device)

    monkeypatch.setattr(host, "copy_to", upload)
    model = kernels.build_for_training(CASES[case])
    training_pass = kernels.training_pass(model, batch())
    training_pass()
    model.zero_grad()
    uploads.clear()
    counts = count_kernels(training_pass)
    measured = (counts.kernels, counts.copies, counts.waits, len(uploads))
    assert case in BOUNDS, f"a new system must have bounds: write {case}: {measured} into BOUNDS"
    bounds = BOUNDS[case]
    assert all(count <= bound for count, bound in zip(measured, bounds, strict=True)), (
        measured,
        counts.by_name,
    )
    assert bounds[0] <= TOLERANCE * measured[0], f"lower the bound to {measured}"


def test_every_model_has_bounds() -> None:
    assert BOUNDS.keys() == CASES.keys()
