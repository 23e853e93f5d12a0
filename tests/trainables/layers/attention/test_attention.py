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
    flash_fault,
)
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
def test_packed_attention_equals_padded_attention(backend: Backend) -> None:
    q, k, v = tensors()
    queries, keys = packings()
    packed = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend=backend)
    torch.testing.assert_close(packed, queries.unpad(attend(q, k, v, keys.mask, backend=backend)))


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


def cute(q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> tuple[Tensor, Tensor]:
    """Compute like the kernel of `flash_attn.cute`, which has no dropout and also returns sums."""
    assert "dropout_p" not in keywords
    return varlen(q, k, v, **keywords), q[..., 0]


def pretend_flash(
    monkeypatch: pytest.MonkeyPatch, capability: int | None = None, *, is_newer: bool = False
) -> None:
    """Pretend that tensors are on a GPU with this major compute capability, and that flash-attn is installed.

    The newer package has no function at the top of `flash_attn`.
    """
    top, below = ModuleType("flash_attn"), ModuleType("flash_attn.cute")
    for module in (top, below):
        module.__spec__ = ModuleSpec(module.__name__, None)
    if is_newer:
        below.flash_attn_varlen_func = cute  # type: ignore[attr-defined]
    else:
        top.flash_attn_varlen_func = varlen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", top)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", below)
    monkeypatch.setattr(flash, "schema_is_known", lambda: False)
    monkeypatch.setattr(flash, "flash_kernels", flash.flash_kernels.__wrapped__)
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(attention, "_capability", lambda device: capability)


def test_flash_is_not_chosen_for_causal_rows_with_halted_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch)
    q = tensors()[0]
    assert choose("auto", q, dropping=False) == "flash"
    assert choose("auto", q, dropping=False, has_all_tokens=False) == "sdpa"
    with pytest.raises(ValueError, match="early_exit: batch"):
        choose("flash", q, dropping=False, has_all_tokens=False)


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


def test_flash_is_not_chosen_with_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch)
    q = tensors()[0]
    assert choose("auto", q, dropping=False, biased=True) == "math"
    with pytest.raises(ValueError, match="auto, sdpa or math"):
        choose("flash", q, dropping=False, biased=True)


def drop(rate: float = 0.5) -> WeightDropout:
    dropout = KeyedDropout(rate)
    dropout.begin(1, "weights")
    return WeightDropout(dropout, dropout.draw(), torch.arange(9).reshape(3, 3))


def test_dropout_drops_the_weights_of_its_mask() -> None:
    q, k, v = tensors()
    keep = drop().keep_and_scale(heads=2, keys=5).keep
    assert keep.shape == (3, 2, 3, 5)
    assert 0.2 < keep.double().mean() < 0.8
    out = attend(q, k, v, drop=drop())
    for row, head, t in ((0, 0, 0), (2, 1, 1)):
        weights = (k[row, :, head] @ q[row, t, head] / ROOT).softmax(0) * keep[row, head, t] * 2
        torch.testing.assert_close(out[row, t, head], weights @ v[row, :, head])


def test_weight_mask_is_independent_of_width_and_other_tokens() -> None:
    wide = drop().keep_and_scale(heads=2, keys=5).keep
    assert torch.equal(drop().keep_and_scale(heads=2, keys=4).keep, wide[..., :4])
    one = WeightDropout(drop().dropout, drop().key, torch.tensor([[7]]))
    assert torch.equal(one.keep_and_scale(heads=2, keys=5).keep[0, :, 0], wide[2, :, 1])


def test_dropout_on_a_cpu_selects_the_explicit_product() -> None:
    q = tensors()[0]
    assert choose("sdpa", q, dropping=True) == "math"
    assert choose("auto", q, dropping=True) == "math"
    assert choose("auto", q, dropping=False) == "sdpa"


def test_missing_flash_kernel_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(flash, "flash_kernels", lambda: ())
    with pytest.raises(ValueError, match=r"'flash'.*pip install 'haltsweep"):
        attend(*tensors(), backend="flash")


def test_flash_on_a_cpu_error_names_alternatives() -> None:
    with pytest.raises(ValueError, match="device=cpu"):
        attend(*tensors(), backend="flash")


def test_flash_requires_16_bits() -> None:
    fault = flash_fault("cuda", torch.float32)
    assert fault is not None
    assert "dtype=torch.float32" in fault
    assert flash_fault("cuda", torch.bfloat16) is None


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


def test_newer_flash_package_is_found_in_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch, is_newer=True)
    (q, k, v), (queries, keys) = tensors(), packings()
    packed = attend_tokens(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend="flash")
    torch.testing.assert_close(packed, torch.stack(by_loops(q, k, v)))
    assert choose("auto", q, dropping=False) == "flash"
    assert choose("auto", q, dropping=True) == "math"
    with pytest.raises(ValueError, match=r"flash_attn.cute .*attention_dropout: 0"):
        choose("flash", q, dropping=True)


@pytest.mark.parametrize(
    ("is_newer", "capability", "width", "fault"),
    [
        (
            False,
            7,
            64,
            "flash-attn 2 needs a GPU of compute capability 8.0 or more, got 7.x; choose auto or sdpa",
        ),
        (False, 8, 264, "flash-attn 2 takes heads up to 256 wide, got 264; choose auto or sdpa"),
        (True, 8, 64, "flash_attn.cute .* 8.x"),
        (True, 9, 12, "flash_attn.cute .* 12;"),
        (True, 10, 136, "flash_attn.cute .* 136;"),
    ],
)
def test_flash_is_not_chosen_for_unsupported_devices_and_widths(
    monkeypatch: pytest.MonkeyPatch, is_newer: bool, capability: int, width: int, fault: str
) -> None:
    pretend_flash(monkeypatch, capability, is_newer=is_newer)
    q = torch.zeros(1, 1, 1, width)
    assert choose("auto", q, dropping=False) == "sdpa"
    with pytest.raises(ValueError, match=fault):
        choose("flash", q, dropping=False)


@pytest.mark.parametrize(
    ("is_newer", "capability", "width"), [(False, 8, 12), (False, 9, 256), (True, 9, 128)]
)
def test_auto_selects_flash_if_it_can_run(
    monkeypatch: pytest.MonkeyPatch, is_newer: bool, capability: int, width: int
) -> None:
    pretend_flash(monkeypatch, capability, is_newer=is_newer)
    assert choose("auto", torch.zeros(1, 1, 1, width), dropping=False) == "flash"


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


class CountingGenerator:
    """A CUDA generator: a seed, and the offset up to which it has been used."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.state = (5, 8)

    def initial_seed(self) -> int:
        return self.state[0]

    def get_offset(self) -> int:
        return self.state[1]

    def manual_seed(self, seed: int) -> None:
        self.state = (seed, 0)

    def set_offset(self, offset: int) -> None:
        self.state = (self.state[0], offset)


def test_kernel_stream_restores_a_cuda_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = CountingGenerator()
    monkeypatch.setattr(attention, "_generator", lambda _: generator)
    with attention._kernel_stream(dropping(3, "cpu")):
        assert generator.state == (3, 0)
        generator.set_offset(4)
    assert generator.state == (5, 8)


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
