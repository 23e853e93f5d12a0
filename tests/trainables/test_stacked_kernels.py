"""Several models take a step together in hardly more kernels than one alone, and without any wait."""

import argparse
from typing import Any

import pytest

from tests.benchmarks import kernels, packed, systems
from tests.support.kernel_count import DeviceCounts
from tests.trainables.test_kernels import OPTIONS, batch
from trainables.types import Batch

MOST = {"gut": 1.07, "ut": 1.13, "gutlb": 1.07, "looped": 0.97, "ndr": 1.0, "tlb": 1.1, "transformer": 1.08}
"""Kernels of all, in times those of one alone that runs every layer."""
CASES = packed.cases(argparse.Namespace(**vars(OPTIONS), only=None))


def counts(raw: dict[str, Any], members: int) -> tuple[DeviceCounts, DeviceCounts]:
    batches: list[Batch] = [batch()] * members
    return packed.alone(raw, batches[0]), packed.together(raw, batches)


@pytest.mark.parametrize("label", CASES)
def test_a_step_of_four_asks_hardly_more_than_that_of_one(label: str) -> None:
    one, four = counts(CASES[label], 4)
    assert four.kernels <= MOST[label] * one.kernels, (one.kernels, four.kernels, four.by_name)
    assert not four.waits, four.waits_by_name
    assert packed.together(CASES[label], [batch()] * 2).kernels == four.kernels, "the same for any number"


def test_models_with_and_without_early_exit_are_counted() -> None:
    assert CASES.keys() == MOST.keys()
    assert all(raw.get(kernels.EXIT, "none") == "none" for raw in CASES.values())
    assert CASES.keys() < systems.systems().keys()
