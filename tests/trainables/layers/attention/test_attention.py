"""Every attention kernel equals the explicit product, and a missing kernel's error names the package."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.devices import needs_cuda
from trainables.layers.attention import attend as attention
from trainables.layers.attention.attend import Backend, WeightDropout, attend_packed
from trainables.layers.attention.explicit import OffsetBias
from trainables.layers.dropout import KeyedDropout
from trainables.layers.packing import Packing, packing_of
from trainables.layers.tokens import KeysValues

QUERIES, KEYS = (3, 1, 2), (4, 2, 5)
WIDTH = 8
ROOT = WIDTH**0.5


def attend_tokens(q: Tensor, k: Tensor, v: Tensor, queries: Packing, keys: Packing, **options: Any) -> Tensor:
    return attend_packed(q, KeysValues.of(k, v, keys), queries, **options)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attend within padded rows."""
    queries, keys = (
        packing_of(torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask)
        for x, mask in ((q, query_mask), (k, key_mask))
    )
    outputs = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, **options)
    return queries.pad(outputs)


def tensors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    q = torch.randn(3, 3, 2, WIDTH, generator=stream, dtype=torch.float64)
    k, v = torch.randn(2, 3, 5, 2, WIDTH, generator=stream, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def packings() -> tuple[Packing, Packing]:
    return Packing.of_lengths(torch.tensor(QUERIES), 3), Packing.of_lengths(torch.tensor(KEYS), 5)


def by_loops(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Compute softmax(q k / sqrt(E)) v for each real query, row after row."""
    out = []
    for row, (queries, keys) in enumerate(zip(QUERIES, KEYS, strict=True)):
        for t in range(queries):
            heads = []
            for head in range(2):
                logits = k[row, :keys, head] @ q[row, t, head] / ROOT
                heads.append(logits.softmax(0) @ v[row, :keys, head])
            out.append(torch.stack(heads))
    return out


@pytest.mark.parametrize("backend", ["auto", "sdpa", "math"])
def test_kernel_equals_the_explicit_sum_with_gradients(backend: Backend) -> None:
    inputs = tensors()
    queries, keys = packings()
    out = queries.unpad(attend(*inputs, keys.mask, queries.mask, backend=backend))
    expected = torch.stack(by_loops(*inputs))
    torch.testing.assert_close(out, expected)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    grads = torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True)
    expected_grads = torch.autograd.grad((expected * weight).sum(), inputs)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("backend", ["sdpa", "math"])
def test_query_attends_only_to_keys_within_its_reach(backend: Backend) -> None:
    """Queries are some tokens of their rows: two of the first row, one of each other row."""
    q, k, v = tensors()
    keys = Packing.of_lengths(torch.tensor(KEYS), 5)
    queries = Packing(torch.tensor([0, 0, 1, 2]), torch.tensor([2, 1, 1]), 2)
    packed = q.flatten(0, 1)[:4]
    num_visible = torch.tensor([2, 3, 1, 5])
    out = attend_tokens(
        packed, keys.unpad(k), keys.unpad(v), queries, keys, num_visible=num_visible, backend=backend
    )
    for number, (row, num_keys) in enumerate(zip([0, 0, 1, 2], num_visible.tolist(), strict=True)):
        for head in range(2):
            logits = k[row, :num_keys, head] @ packed[number, head] / ROOT
            torch.testing.assert_close(out[number, head], logits.softmax(0) @ v[row, :num_keys, head])
    (grad,) = torch.autograd.grad(out.sum(), k)
    assert grad.isfinite().all()


@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_every_kernel_adds_the_bias_to_logits(backend: Backend) -> None:
    q, k, v = tensors()
    lengths = torch.tensor([2, 1, 3])
    packing, keys = Packing.of_lengths(lengths, 3), Packing.of_lengths(torch.tensor([4, 1, 5]), 5)
    bias = torch.randn(3, 2, 3, 5, generator=torch.Generator().manual_seed(4), dtype=q.dtype)
    # Every key has a different offset.
    offset_bias = OffsetBias(bias, torch.arange(5).expand(3, 3, 5))
    out = attend_tokens(
        packing.unpad(q), keys.unpad(k), keys.unpad(v), packing, keys, bias=offset_bias, backend=backend
    )
    for number, (row, column) in enumerate(zip(packing.row.tolist(), packing.column.tolist(), strict=True)):
        num_keys = int(keys.counts[row])
        for head in range(2):
            logits = (
                k[row, :num_keys, head] @ q[row, column, head] / ROOT + bias[row, head, column, :num_keys]
            )
            torch.testing.assert_close(out[number, head], logits.softmax(0) @ v[row, :num_keys, head])


def dropout(rate: float = 0.5) -> WeightDropout:
    dropout = KeyedDropout(rate)
    dropout.begin(1, "weights")
    return WeightDropout(dropout, dropout.draw(), torch.arange(9).reshape(3, 3))


def test_dropout_drops_the_weights_of_its_mask() -> None:
    q, k, v = tensors()
    keep = dropout().keep_and_scale(heads=2, keys=5).keep
    assert keep.shape == (3, 2, 3, 5)
    assert 0.2 < keep.double().mean() < 0.8
    out = attend(q, k, v, dropout=dropout())
    for row, head, t in ((0, 0, 0), (2, 1, 1)):
        weights = (k[row, :, head] @ q[row, t, head] / ROOT).softmax(0) * keep[row, head, t] * 2
        torch.testing.assert_close(out[row, t, head], weights @ v[row, :, head])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_kernels_on_cuda_equal_the_explicit_product(backend: Backend) -> None:
    q, k, v = (x.detach().to("cuda", torch.bfloat16) for x in tensors())
    queries, keys = (Packing.of_lengths(p.counts.cuda(), p.width) for p in packings())
    out = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend=backend)
    expected = torch.stack(by_loops(*(x.double().cpu() for x in (q, k, v))))
    torch.testing.assert_close(out.double().cpu(), expected, rtol=2e-2, atol=2e-2)


def make_weight_dropout(key: int, device: str) -> WeightDropout:
    return WeightDropout(KeyedDropout(0.5), key, torch.zeros(1, 1, dtype=torch.long, device=device))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])])
def test_kernel_stream_draws_by_its_key_and_restores_the_generator(device: str) -> None:
    def draw() -> Tensor:
        return torch.rand(4, device=device)

    with torch.random.fork_rng():
        torch.manual_seed(3)
        by_key = draw()
        torch.manual_seed(1)
        expected_numbers = torch.cat([draw(), draw()])
        torch.manual_seed(1)
        first = draw()
        with attention._kernel_stream(make_weight_dropout(3, device)):
            torch.testing.assert_close(draw(), by_key, rtol=0, atol=0)
        with pytest.raises(ZeroDivisionError), attention._kernel_stream(make_weight_dropout(4, device)):
            raise ZeroDivisionError
        torch.testing.assert_close(torch.cat([first, draw()]), expected_numbers, rtol=0, atol=0)
