"""Geometric attention has weights of probabilities, also in portions of rows."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.specs.examples import examples
from trainables.layers.attention import geometric
from trainables.layers.attention.geometric import (
    GeometricAttention,
    Portion,
    attend_nearest,
    mask_keys,
    split_portions,
)
from trainables.layers.packing import Packing

CPU = torch.device("cpu")


def attention_weights(logits: Tensor, keys: Tensor, *, normalise: bool = False) -> Tensor:
    """Return the weights: with unit vectors as values, the output of a query is its weights."""
    rows, heads, size, _ = logits.shape
    units = torch.eye(size, dtype=logits.dtype).expand(rows, heads, -1, -1)
    portions = (Portion.of(mask_keys(keys, logits.dtype)),)
    zero = logits.new_zeros((rows, heads, size, 1))
    return attend_nearest(logits, units, units, zero, None, portions, normalise=normalise)


def weights(logits: Tensor, length: int | None = None) -> Tensor:
    size = logits.shape[0]
    keys = torch.arange(size) < (size if length is None else length)
    return attention_weights(logits.double()[None, None], keys[None])[0, 0]


@examples(20)
@given(size=st.integers(2, 9), num_padding=st.integers(0, 4), seed=st.integers(0, 1000))
def test_weights_sum_to_the_probability_of_a_match_without_padding(
    size: int, num_padding: int, seed: int
) -> None:
    stream = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(size + num_padding, size + num_padding, generator=stream, dtype=torch.float64)
    table = weights(logits, size)
    assert (table[:, size:] == 0).all()
    torch.testing.assert_close(table[:size, :size], weights(logits[:size, :size]))
    off_diagonal = ~torch.eye(size, dtype=torch.bool)
    misses = torch.where(off_diagonal, torch.sigmoid(-logits[:size, :size]), 1.0).prod(-1)
    torch.testing.assert_close(table[:size, :size].sum(-1), 1 - misses)


def test_gradients_of_long_rows_are_finite() -> None:
    logits = torch.full((200, 200), 20.0, requires_grad=True)
    keys = torch.ones(1, 200, dtype=torch.bool)
    attention_weights(logits[None, None], keys, normalise=True).square().sum().backward()
    assert logits.grad.isfinite().all()


def outputs_and_grads(lengths: Sequence[int], *, has_host_counts: bool, direction: bool) -> list[Tensor]:
    """Return the outputs of the tokens, and all gradients."""
    stream = torch.Generator().manual_seed(0)
    module = GeometricAttention(6, 2, 5, 0.0, direction=direction, normalise=True).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=stream)
    x = torch.randn(sum(lengths), 6, generator=stream, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor(lengths)
    packing = (
        Packing.of_counts(np.array(lengths), CPU)
        if has_host_counts
        else Packing.of_lengths(counts, max(lengths))
    )
    outputs = module(x, packing, torch.arange(x.shape[0]))
    outputs.backward(torch.randn(outputs.shape, generator=stream, dtype=torch.float64))
    return [outputs, *(tensor.grad for tensor in (x, *module.parameters()) if tensor.grad is not None)]


@pytest.mark.parametrize("direction", [True, False])
@pytest.mark.parametrize("max_pairs", [1, 150, 400, 1 << 17])
def test_portions_of_sorted_rows_equal_all_rows_at_once(
    max_pairs: int, direction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = (3, 9, 2, 7, 7, 4)
    expected = outputs_and_grads(lengths, has_host_counts=False, direction=direction)
    monkeypatch.setattr(geometric, "MAX_PAIRS", max_pairs)
    portions = split_portions(Packing.of_counts(np.array(lengths), CPU), 2, torch.float64)
    assert sum(part.logit_mask.shape[0] for part in portions) == len(lengths)
    assert (len(portions) > 1) == (max_pairs < 1 << 17)
    for actual, expected_value in zip(
        outputs_and_grads(lengths, has_host_counts=True, direction=direction), expected, strict=True
    ):
        torch.testing.assert_close(actual, expected_value)
