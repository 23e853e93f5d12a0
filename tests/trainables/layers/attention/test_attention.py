"""Every attention kernel equals the explicit product, and a missing kernel's error names the package."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.devices import needs_cuda
from trainables.layers.attention import attend as attention
from trainables.layers.attention import flash
from trainables.layers.attention.attend import (
    Backend,
    WeightDropout,
    attend_packed,
    choose,
)
from trainables.layers.attention.explicit_offsets import OffsetBias
from trainables.layers.dropout import KeyedDropout
from trainables.layers.packing import Packing, packing_of
from trainables.layers.tokens import KeysValues

QUERIES, KEYS = (3, 1, 2), (4, 2, 5)
WIDTH = 8
ROOT = WIDTH**0.5


def attend_tokens(q: Tensor, k: Tensor, v: Tensor, queries: Packing, keys: Packing, **options: Any) -> Tensor:
    return attend_packed(q, KeysValues(k, v, keys), queries, **options)


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
    reach = torch.tensor([2, 3, 1, 5])
    out = attend_tokens(packed, keys.unpad(k), keys.unpad(v), queries, keys, reach=reach, backend=backend)
    for number, (row, num_keys) in enumerate(zip([0, 0, 1, 2], reach.tolist(), strict=True)):
        for head in range(2):
            logits = k[row, :num_keys, head] @ packed[number, head] / ROOT
            torch.testing.assert_close(out[number, head], logits.softmax(0) @ v[row, :num_keys, head])
    (grad,) = torch.autograd.grad(out.sum(), k)
    assert grad.isfinite().all()


def varlen(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
    """Compute what flash-attn's kernel computes, from its documented arguments."""
    starts_q, starts_k = keywords["cu_seqlens_q"].tolist(), keywords["cu_seqlens_k"].tolist()
    assert keywords["cu_seqlens_q"].dtype == torch.int32
    out = []
    for row in range(len(starts_q) - 1):
        row_q = q[starts_q[row] : starts_q[row + 1]]
        row_k, row_v = (x[starts_k[row] : starts_k[row + 1]] for x in (k, v))
        assert row_q.shape[0] <= keywords["max_seqlen_q"]
        assert row_k.shape[0] <= keywords["max_seqlen_k"]
        logits = torch.einsum("qhe,khe->hqk", row_q, row_k) / q.shape[-1] ** 0.5
        if keywords["causal"]:
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), float("-inf"))
        out.append(torch.einsum("hqk,khe->qhe", logits.softmax(-1), row_v))
    return torch.cat(out)


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


def drop(rate: float = 0.5) -> WeightDropout:
    dropout = KeyedDropout(rate)
    dropout.begin(1, "weights")
    return WeightDropout(dropout, dropout.draw(), torch.arange(9).reshape(3, 3))


def test_dropout_drops_the_weights_of_its_mask() -> None:
    q, k, v = tensors()
    keep = drop().keep(heads=2, keys=5)
    assert keep.shape == (3, 2, 3, 5)
    assert 0.2 < keep.double().mean() < 0.8
    out = attend(q, k, v, drop=drop())
    for row, head, t in ((0, 0, 0), (2, 1, 1)):
        weights = (k[row, :, head] @ q[row, t, head] / ROOT).softmax(0) * keep[row, head, t] * 2
        torch.testing.assert_close(out[row, t, head], weights @ v[row, :, head])


def test_weight_mask_is_independent_of_width_and_other_tokens() -> None:
    wide = drop().keep(heads=2, keys=5)
    assert torch.equal(drop().keep(heads=2, keys=4), wide[..., :4])
    one = WeightDropout(drop().dropout, drop().key, torch.tensor([[7]]))
    assert torch.equal(one.keep(heads=2, keys=5)[0, :, 0], wide[2, :, 1])


def pretend_flash(monkeypatch: pytest.MonkeyPatch, capability: int | None = None) -> None:
    """Pretend that flash-attn is installed, and that tensors are on a GPU with this compute capability."""
    module = ModuleType("flash_attn")
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.flash_attn_varlen_func = varlen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(flash, "schema_is_known", lambda: False)
    monkeypatch.setattr(flash, "flash_kernels", flash.flash_kernels.__wrapped__)
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(attention, "_capability", lambda device: capability)


@pytest.mark.parametrize(
    ("capability", "width", "options", "chosen", "fault"),
    [
        (8, 12, {}, "flash", None),
        (7, 64, {}, "sdpa", "compute capability"),
        (8, 264, {}, "sdpa", "got 264"),
        (8, 64, {"has_all_tokens": False}, "sdpa", "early_exit: batch"),
        (8, 64, {"biased": True}, "math", "auto, sdpa or math"),
    ],
)
def test_flash_is_chosen_if_it_can_run(
    monkeypatch: pytest.MonkeyPatch,
    capability: int,
    width: int,
    options: dict[str, bool],
    chosen: str,
    fault: str | None,
) -> None:
    pretend_flash(monkeypatch, capability)
    q = torch.zeros(1, 1, 1, width)
    assert choose("auto", q, dropping=False, **options) == chosen
    if fault is not None:
        with pytest.raises(ValueError, match=fault):
            choose("flash", q, dropping=False, **options)


def test_flash_without_a_kernel_or_a_gpu_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="device=cpu"):
        attend(*tensors(), backend="flash")
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(flash, "flash_kernels", lambda: ())
    with pytest.raises(ValueError, match=r"'flash'.*pip install 'haltsweep"):
        attend(*tensors(), backend="flash")


def test_flash_gets_tokens_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself needs CUDA; the test checks the arguments that it gets."""
    pretend_flash(monkeypatch)
    q, k, v = tensors()
    queries, keys = packings()
    expected = torch.stack(by_loops(q, k, v))
    dense = attend(q, k, v, keys.mask, queries.mask, backend="auto")
    torch.testing.assert_close(queries.unpad(dense), expected)
    packed = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend="flash")
    torch.testing.assert_close(packed, expected)
    inputs, reach = [keys.unpad(x) for x in (k * 2, k, v)], keys.column + 1
    causal = attend_tokens(*inputs, keys, keys, reach=reach, backend="flash")
    torch.testing.assert_close(causal, attend_tokens(*inputs, keys, keys, reach=reach, backend="math"))
    torch.testing.assert_close(attend(q, k, v, backend="flash"), attend(q, k, v, backend="math"))


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_kernels_on_cuda_equal_the_explicit_product(backend: Backend) -> None:
    q, k, v = (x.detach().to("cuda", torch.bfloat16) for x in tensors())
    queries, keys = (Packing.of_lengths(p.counts.cuda(), p.width) for p in packings())
    out = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend=backend)
    expected = torch.stack(by_loops(*(x.double().cpu() for x in (q, k, v))))
    torch.testing.assert_close(out.double().cpu(), expected, rtol=2e-2, atol=2e-2)


def dropping(key: int, device: str) -> WeightDropout:
    return WeightDropout(KeyedDropout(0.5), key, torch.zeros(1, 1, dtype=torch.long, device=device))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])])
def test_kernel_stream_draws_by_its_key_and_restores_the_generator(device: str) -> None:
    def draw() -> Tensor:
        return torch.rand(4, device=device)

    with torch.random.fork_rng():
        torch.manual_seed(3)
        by_key = draw()
        torch.manual_seed(1)
        undisturbed = torch.cat([draw(), draw()])
        torch.manual_seed(1)
        first = draw()
        with attention._kernel_stream(dropping(3, device)):
            torch.testing.assert_close(draw(), by_key, rtol=0, atol=0)
        with pytest.raises(ZeroDivisionError), attention._kernel_stream(dropping(4, device)):
            raise ZeroDivisionError
        torch.testing.assert_close(torch.cat([first, draw()]), undisturbed, rtol=0, atol=0)
