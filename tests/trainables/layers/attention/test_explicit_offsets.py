"""Attention with logits by offset, computed in portions, equals the padded form."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.specs.examples import examples
from trainables.layers.attention import explicit as explicit_module
from trainables.layers.attention.attend import additive_mask
from trainables.layers.attention.explicit import KeptWeights, OffsetBias, explicit
from trainables.layers.packing import Packing

HEADS, WIDTH, OFFSETS = 2, 3, 4
CPU = torch.device("cpu")


class OffsetRows:
    """Rows of random lengths, with all inputs of attention."""

    def __init__(
        self, num_queries: list[int], num_keys: list[int], seed: int, *, causal: bool, has_dropout: bool
    ) -> None:
        self.has_bias = True
        self.stream = torch.Generator().manual_seed(seed)
        self.packings = (
            Packing.of_counts(np.array(num_queries), CPU),
            Packing.of_counts(np.array(num_keys), CPU),
        )
        rows, queries, keys = len(num_queries), max(num_queries), max(num_keys)
        self.query_mask, self.key_mask = (packing.mask[:, None, :, None] for packing in self.packings)
        sizes = (queries, WIDTH), (keys, WIDTH), (keys, WIDTH), (queries, OFFSETS)
        self.inputs = [self.random(rows, HEADS, *size).requires_grad_() for size in sizes]
        self.offset = torch.randint(0, OFFSETS, (rows, queries, keys), generator=self.stream)
        mask = self.packings[1].mask[:, None, None]
        if causal:
            mask = mask & (torch.arange(keys) <= torch.arange(queries)[:, None])
        self.logit_mask = additive_mask(mask, torch.float64).expand(-1, 1 if causal else HEADS, -1, -1)
        keep = torch.rand(rows, HEADS, queries, keys, generator=self.stream) < 0.7
        self.kept_weights = KeptWeights(keep, 1 / 0.7) if has_dropout else None

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.stream, dtype=torch.float64)

    def run_portions(self, q: Tensor, k: Tensor, v: Tensor, offset_logits: Tensor) -> Tensor:
        """Run the module in portions; outputs and gradients of padding are undefined, and set to zero."""
        q, k, v = (
            torch.where(query_mask, tensor, 0)
            for query_mask, tensor in ((self.query_mask, q), (self.key_mask, k), (self.key_mask, v))
        )
        bias = OffsetBias(offset_logits, self.offset) if self.has_bias else None
        return torch.where(
            self.query_mask, explicit(q, k, v, self.packings, bias, self.logit_mask, self.kept_weights), 0
        )

    def run_padded(self, q: Tensor, k: Tensor, v: Tensor, offset_logits: Tensor) -> Tensor:
        """Run the padded form by the formula."""
        logits = q @ k.mT * WIDTH**-0.5 + self.logit_mask
        if self.has_bias:
            logits = logits + OffsetBias(offset_logits, self.offset).table()
        weights = logits.softmax(-1)
        if self.kept_weights is not None:
            weights = weights * self.kept_weights.keep * self.kept_weights.scale
        return torch.where(self.query_mask, weights @ v, 0)


@pytest.mark.parametrize("max_pairs", [1, 100, 1 << 15])
@examples(15)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    causal=st.booleans(),
    has_dropout=st.booleans(),
    has_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_portions_equal_the_padded_form(
    max_pairs: int, lengths: list[tuple[int, int]], causal: bool, has_dropout: bool, has_bias: bool, seed: int
) -> None:
    case = OffsetRows(*map(list, zip(*lengths, strict=True)), seed, causal=causal, has_dropout=has_dropout)
    case.has_bias = has_bias
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explicit_module, "MAX_BIASED_PAIRS", max_pairs)
        patch.setattr(explicit_module, "MAX_PAIRS_IF_FEW", max_pairs)
        output = case.run_portions(*case.inputs)
    expected = case.run_padded(*case.inputs)
    torch.testing.assert_close(output, expected)
    grad, inputs = case.random(*output.shape), case.inputs if has_bias else case.inputs[:3]
    for grad_, expected_grad in zip(
        torch.autograd.grad(output, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(grad_, expected_grad)
