"""Attention with logits by offset, part by part, against that of the whole padded form."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.numerics.finite_differences import gradients_agree
from tests.support.specs.examples import examples
from trainables.layers.attention import explicit_offsets
from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import KeptWeights, explicit
from trainables.layers.attention.explicit_offsets import OffsetBias, explicit_by_offset
from trainables.layers.head_rows import can_leave_padding
from trainables.layers.packing import Packing

HEADS, WIDTH, OFFSETS = 2, 3, 4
CPU = torch.device("cpu")


class OffsetRows:
    """Rows of random lengths, and all that attention takes."""

    def __init__(self, asks: list[int], sees: list[int], seed: int, *, causal: bool, drops: bool) -> None:
        self.stream = torch.Generator().manual_seed(seed)
        self.packings = Packing.of_counts(np.array(asks), CPU), Packing.of_counts(np.array(sees), CPU)
        rows, queries, keys = len(asks), max(asks), max(sees)
        self.real, self.seen = (each.mask[:, None, :, None] for each in self.packings)
        sizes = (queries, WIDTH), (keys, WIDTH), (keys, WIDTH), (queries, OFFSETS)
        self.inputs = [self.drawn(rows, HEADS, *size).requires_grad_() for size in sizes]
        self.offset = torch.randint(0, OFFSETS, (rows, queries, keys), generator=self.stream)
        mask = self.packings[1].mask[:, None, None]
        if causal:
            mask = mask & (torch.arange(keys) <= torch.arange(queries)[:, None])
        self.barred = additive_mask(mask, torch.float64).expand(-1, 1 if causal else HEADS, -1, -1)
        keep = torch.rand(rows, HEADS, queries, keys, generator=self.stream) < 0.7
        self.kept = KeptWeights(keep, 1 / 0.7) if drops else None

    def drawn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.stream, dtype=torch.float64)

    def by_part(self, q: Tensor, k: Tensor, v: Tensor, found: Tensor) -> Tensor:
        """What is asked of the module. In padding what comes out and its gradients have no meaning."""
        q, k, v = (
            torch.where(real, each, 0) for real, each in ((self.real, q), (self.seen, k), (self.seen, v))
        )
        bias = OffsetBias(found, self.offset)
        given = {"attention_mask": self.barred, "weight_dropout": self.kept}
        return torch.where(self.real, explicit_by_offset(q, k, v, bias, self.packings, **given), 0)

    def whole(self, q: Tensor, k: Tensor, v: Tensor, found: Tensor) -> Tensor:
        """The same by the padded form."""
        table = OffsetBias(found, self.offset).table()
        return torch.where(
            self.real, explicit(q, k, v, attention_mask=self.barred, bias=table, weight_dropout=self.kept), 0
        )


@pytest.mark.parametrize("most", [1, 100, 1 << 15])
@examples(15)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    causal=st.booleans(),
    drops=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_parts_give_what_the_padded_form_gives(
    most: int, lengths: list[tuple[int, int]], causal: bool, drops: bool, seed: int
) -> None:
    case = OffsetRows(*map(list, zip(*lengths, strict=True)), seed, causal=causal, drops=drops)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explicit_offsets, "MAX_PAIRS", most)
        found = case.by_part(*case.inputs)
    expected = case.whole(*case.inputs)
    torch.testing.assert_close(found, expected)
    grad = case.drawn(*found.shape)
    for one, other in zip(
        torch.autograd.grad(found, case.inputs, grad),
        torch.autograd.grad(expected, case.inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@examples(5)
@given(causal=st.booleans(), drops=st.booleans(), seed=st.integers(0, 1000))
def test_gradients_are_those_of_finite_differences(causal: bool, drops: bool, seed: int) -> None:
    case = OffsetRows([3, 1], [3, 2], seed, causal=causal, drops=drops)
    assert gradients_agree(case.by_part, case.inputs)


@pytest.mark.parametrize("most", [1, 1 << 15])
def test_rows_that_nobody_asks_in_are_passed_over(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_offsets, "MAX_PAIRS", most)
    case = OffsetRows([2, 0, 1], [2, 2, 3], 0, causal=False, drops=False)
    found, expected = case.by_part(*case.inputs), case.whole(*case.inputs)
    torch.testing.assert_close(found, expected)


def test_lengths_that_the_host_does_not_know_are_not_waited_for() -> None:
    known, unknown = Packing.of_counts(np.array([2, 1]), CPU), Packing.of_lengths(torch.tensor([2, 1]), 2)
    assert can_leave_padding(known, known)
    assert not can_leave_padding(known, unknown)
    assert not unknown.by_host
