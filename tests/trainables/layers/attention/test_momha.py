"""Attention of experts with relative positions equals ordinary attention for a single expert."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.assembly import initialise
from trainables.layers.attention.attend import Backend
from trainables.layers.attention.momha import AttentionSettings, ExpertAttention, ExpertSelfAttention
from trainables.layers.packing import Packing
from trainables.layers.tokens import Tokens

WIDTH, LENGTH = 6, 5


def built(window: int = 1, kernel: Backend = "auto", *, experts: int = 1) -> ExpertSelfAttention:
    sizes = AttentionSettings(experts=experts, active=1, heads=2, head_width=3, window=window)
    module = ExpertSelfAttention(WIDTH, sizes, 0.0, 0.0, kernel)
    initialise(module, 2)
    return module.double().eval()


def inputs() -> tuple[Tensor, Tokens]:
    x = torch.randn(LENGTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    packing = Packing.of_lengths(torch.tensor([LENGTH]), LENGTH)
    return x, Tokens.unrotated(packing)


def run_attention(module: ExpertAttention, x: Tensor, tokens: Tokens) -> Tensor:
    keys_and_values = module.project_kv(x, tokens.packing)
    out: Tensor = module(x, tokens, keys_and_values)[0]
    return out


def pytorch_attention(module: ExpertAttention, x: Tensor) -> Tensor:
    """Compute a single expert without positions by PyTorch's attention."""
    q, k, v = (
        F.linear(x, weight).reshape(LENGTH, 2, 3).transpose(0, 1)[None]
        for weight in (module.query.weight[0], module.key.weight, module.value.weight)
    )
    gathered = F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)
    return F.linear(gathered, module.output.weight[0])


def test_single_expert_without_positions_equals_multi_head_attention() -> None:
    module = built()
    x, tokens = inputs()
    torch.testing.assert_close(run_attention(module, x, tokens), pytorch_attention(module, x))


def test_offset_weights_start_at_zero_and_offsets_are_clipped() -> None:
    """All offsets beyond the window share one weight on each side."""
    module = built(window=1)
    assert module.offsets.weight.shape == (2, 3, 3)
    assert not module.offsets.weight.any()
    module.query.weight.data.zero_()
    x, tokens = inputs()
    keys_and_values = module.project_kv(x, tokens.packing)
    ones = torch.ones(LENGTH, 2, 3, dtype=torch.float64)
    module.offsets.weight.data[:] = torch.tensor([1.0, 2.0, 3.0])
    bias = module._bias(ones, tokens, tokens.packing, keys_and_values.packing)
    expected = torch.tensor(
        [[1.0 + min(1, max(-1, j - i)) + 1 for j in range(LENGTH)] for i in range(LENGTH)]
    )
    expected = expected.double() * 3 * 3**-0.5
    torch.testing.assert_close(bias.table(), expected.expand(1, 2, LENGTH, LENGTH))


@pytest.mark.parametrize("window", [0, 1, 2, 9])
def test_kernels_agree_with_relative_positions(window: int) -> None:
    x, tokens = inputs()
    results = []
    for kernel in ("math", "sdpa", "auto"):
        module = built(window, kernel, experts=3)
        module.offsets.weight.data.normal_(generator=torch.Generator().manual_seed(1))
        results.append(run_attention(module, x, tokens))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


def test_offsets_of_active_tokens_count_halted_tokens() -> None:
    """After neighbours have halted, queries still have their offsets to all keys."""
    module = built(window=2)
    module.offsets.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    x, tokens = inputs()
    keys_and_values = module.project_kv(x, tokens.packing)
    active_rows = torch.tensor([1, 4])
    active_tokens = tokens.select(active_rows, np.array([0]), Packing.of_lengths(torch.tensor([2]), 2))
    torch.testing.assert_close(
        module(x[active_rows], active_tokens, keys_and_values)[0],
        module(x, tokens, keys_and_values)[0][active_rows],
    )
