"""The attention seam: every kernel equals the explicit product; a missing one says what to install."""

import re
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
from trainables.layers.attention.explicit_offsets import OffsetBias
from trainables.layers.dropout import KeyedDropout
from trainables.layers.packing import Packing, packing_of
from trainables.layers.tokens import KeysValues

QUERIES, KEYS = (3, 1, 2), (4, 2, 5)
WIDTH = 8
ROOT = WIDTH**0.5


def attended(q: Tensor, k: Tensor, v: Tensor, queries: Packing, keys: Packing, **how: Any) -> Tensor:
    return attend_packed(q, KeysValues(k, v, keys), queries, **how)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    **how: Any,
) -> Tensor:
    """Of padded rows."""
    queries, keys = (
        packing_of(torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask)
        for x, mask in ((q, query_mask), (k, key_mask))
    )
    found = attended(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, **how)
    return queries.pad(found)


def tensors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    q = torch.randn(3, 3, 2, WIDTH, generator=stream, dtype=torch.float64)
    k, v = torch.randn(2, 3, 5, 2, WIDTH, generator=stream, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def packings() -> tuple[Packing, Packing]:
    return Packing.of_lengths(torch.tensor(QUERIES), 3), Packing.of_lengths(torch.tensor(KEYS), 5)


def by_loops(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """softmax(q k / sqrt(E)) v for each real query, row after row."""
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
def test_kernels_equal_the_explicit_sum_with_gradients(backend: Backend) -> None:
    inputs = tensors()
    queries, keys = packings()
    out = queries.unpad(attend(*inputs, keys.mask, queries.mask, backend=backend))
    expected = torch.stack(by_loops(*inputs))
    torch.testing.assert_close(out, expected)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours = torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("backend", ["sdpa", "math"])
def test_packed_equals_padded(backend: Backend) -> None:
    q, k, v = tensors()
    queries, keys = packings()
    packed = attended(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend=backend)
    torch.testing.assert_close(packed, queries.unpad(attend(q, k, v, keys.mask, backend=backend)))


@pytest.mark.parametrize("backend", ["sdpa", "math"])
def test_reach_ends_the_sight_of_each_query(backend: Backend) -> None:
    """Queries are some tokens of their rows: two of the first row's, one of each of the others'."""
    q, k, v = tensors()
    keys = Packing.of_lengths(torch.tensor(KEYS), 5)
    queries = Packing(torch.tensor([0, 0, 1, 2]), torch.tensor([2, 1, 1]), 2)
    packed = q.flatten(0, 1)[:4]
    reach = torch.tensor([2, 3, 1, 5])
    out = attended(packed, keys.unpad(k), keys.unpad(v), queries, keys, reach=reach, backend=backend)
    for number, (row, seen) in enumerate(zip([0, 0, 1, 2], reach.tolist(), strict=True)):
        for head in range(2):
            logits = k[row, :seen, head] @ packed[number, head] / ROOT
            torch.testing.assert_close(out[number, head], logits.softmax(0) @ v[row, :seen, head])
    (grad,) = torch.autograd.grad(out.sum(), k)
    assert grad.isfinite().all()


def varlen(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> Tensor:
    """What flash-attn's kernel computes, from its documented arguments."""
    starts_q, starts_k = named["cu_seqlens_q"].tolist(), named["cu_seqlens_k"].tolist()
    assert named["cu_seqlens_q"].dtype == torch.int32
    out = []
    for row in range(len(starts_q) - 1):
        one_q = q[starts_q[row] : starts_q[row + 1]]
        one_k, one_v = (x[starts_k[row] : starts_k[row + 1]] for x in (k, v))
        assert one_q.shape[0] <= named["max_seqlen_q"]
        assert one_k.shape[0] <= named["max_seqlen_k"]
        logits = torch.einsum("qhe,khe->hqk", one_q, one_k) / q.shape[-1] ** 0.5
        if named["causal"]:
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), float("-inf"))
        out.append(torch.einsum("hqk,khe->qhe", logits.softmax(-1), one_v))
    return torch.cat(out)


def cute(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
    """What the kernel of `flash_attn.cute` takes and gives: no dropout, and sums beside the outputs."""
    assert "dropout_p" not in named
    return varlen(q, k, v, **named), q[..., 0]


def pretend_flash(
    monkeypatch: pytest.MonkeyPatch, capability: int | None = None, *, newer: bool = False
) -> None:
    """As if tensors were on a GPU of that major compute capability, with flash-attn alone installed. The
    newer package has nothing at the top of `flash_attn`."""
    top, below = ModuleType("flash_attn"), ModuleType("flash_attn.cute")
    for module in (top, below):
        module.__spec__ = ModuleSpec(module.__name__, None)
    if newer:
        below.flash_attn_varlen_func = cute  # type: ignore[attr-defined]
    else:
        top.flash_attn_varlen_func = varlen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", top)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", below)
    monkeypatch.setattr(flash, "schema_is_known", lambda: False)
    monkeypatch.setattr(flash, "flash_kernels", flash.flash_kernels.__wrapped__)
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(attention, "_capability", lambda device: capability)


def test_flash_is_not_asked_to_leave_out_tokens_under_a_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch)
    q = tensors()[0]
    assert choose("auto", q, dropping=False) == "flash"
    assert choose("auto", q, dropping=False, has_all_tokens=False) == "sdpa"
    with pytest.raises(ValueError, match=r"cannot leave out tokens that halted .* early_exit: batch"):
        choose("flash", q, dropping=False, has_all_tokens=False)


@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_what_is_added_to_logits_is_added_by_every_kernel(backend: Backend) -> None:
    q, k, v = tensors()
    lengths = torch.tensor([2, 1, 3])
    packing, keys = Packing.of_lengths(lengths, 3), Packing.of_lengths(torch.tensor([4, 1, 5]), 5)
    bias = torch.randn(3, 2, 3, 5, generator=torch.Generator().manual_seed(4), dtype=q.dtype)
    # An offset of its own for every key.
    added = OffsetBias(bias, torch.arange(5).expand(3, 3, 5))
    out = attended(packing.unpad(q), keys.unpad(k), keys.unpad(v), packing, keys, bias=added, backend=backend)
    for number, (row, column) in enumerate(zip(packing.row.tolist(), packing.column.tolist(), strict=True)):
        seen = int(keys.counts[row])
        for head in range(2):
            logits = k[row, :seen, head] @ q[row, column, head] / ROOT + bias[row, head, column, :seen]
            torch.testing.assert_close(out[number, head], logits.softmax(0) @ v[row, :seen, head])


def test_flash_is_not_asked_to_add_to_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch)
    q = tensors()[0]
    assert choose("auto", q, dropping=False, biased=True) == "math"
    with pytest.raises(ValueError, match=r"cannot add to logits .* choose auto, sdpa or math"):
        choose("flash", q, dropping=False, biased=True)


def drop(rate: float = 0.5) -> WeightDropout:
    dropout = KeyedDropout(rate)
    dropout.begin(1, "weights")
    return WeightDropout(dropout, dropout.draw(), torch.arange(9).reshape(3, 3))


def test_dropped_weights_are_those_of_the_mask() -> None:
    q, k, v = tensors()
    keep = drop().keep(heads=2, keys=5)
    assert keep.shape == (3, 2, 3, 5)
    assert 0.2 < keep.double().mean() < 0.8
    out = attend(q, k, v, drop=drop())
    for row, head, t in ((0, 0, 0), (2, 1, 1)):
        weights = (k[row, :, head] @ q[row, t, head] / ROOT).softmax(0) * keep[row, head, t] * 2
        torch.testing.assert_close(out[row, t, head], weights @ v[row, :, head])


def test_masks_of_weights_do_not_depend_on_width_or_company() -> None:
    wide = drop().keep(heads=2, keys=5)
    assert torch.equal(drop().keep(heads=2, keys=4), wide[..., :4])
    one = WeightDropout(drop().dropout, drop().key, torch.tensor([[7]]))
    assert torch.equal(one.keep(heads=2, keys=5)[0, :, 0], wide[2, :, 1])


def test_dropout_on_a_cpu_takes_the_explicit_product() -> None:
    q = tensors()[0]
    assert choose("sdpa", q, dropping=True) == "math"
    assert choose("auto", q, dropping=True) == "math"
    assert choose("auto", q, dropping=False) == "sdpa"


def test_asking_for_flash_where_no_kernel_is_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(flash, "flash_kernels", lambda: ())
    with pytest.raises(ValueError, match=r"'flash' cannot run: .* not installed; pip install 'haltsweep"):
        attend(*tensors(), backend="flash")


def test_asking_for_flash_on_a_cpu_says_what_to_choose() -> None:
    with pytest.raises(ValueError, match=r"needs tensors on CUDA, got device=cpu; choose auto or sdpa"):
        attend(*tensors(), backend="flash")


def test_flash_needs_16_bits_on_cuda() -> None:
    fault = flash_fault("cuda", torch.float32)
    assert fault is not None
    assert "needs 16-bit tensors, got dtype=torch.float32" in fault
    assert flash_fault("cuda", torch.bfloat16) is None


def test_flash_gets_tokens_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself needs CUDA; what we hand it is checked against its contract."""
    pretend_flash(monkeypatch)
    q, k, v = tensors()
    queries, keys = packings()
    expected = torch.stack(by_loops(q, k, v))
    dense = attend(q, k, v, keys.mask, queries.mask, backend="auto")
    torch.testing.assert_close(queries.unpad(dense), expected)
    packed = attended(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend="flash")
    torch.testing.assert_close(packed, expected)
    whole, reach = [keys.unpad(x) for x in (k * 2, k, v)], keys.column + 1
    causal = attended(*whole, keys, keys, reach=reach, backend="flash")
    torch.testing.assert_close(causal, attended(*whole, keys, keys, reach=reach, backend="math"))
    torch.testing.assert_close(attend(q, k, v, backend="flash"), attend(q, k, v, backend="math"))


def test_the_newer_flash_package_is_found_below_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_flash(monkeypatch, newer=True)
    (q, k, v), (queries, keys) = tensors(), packings()
    packed = attended(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend="flash")
    torch.testing.assert_close(packed, torch.stack(by_loops(q, k, v)))
    assert choose("auto", q, dropping=False) == "flash"
    assert choose("auto", q, dropping=True) == "math"
    with pytest.raises(
        ValueError, match=r"flash_attn.cute cannot drop .* set attention_dropout: 0, or choose"
    ):
        choose("flash", q, dropping=True)


@pytest.mark.parametrize(
    ("newer", "capability", "width", "says"),
    [
        (
            False,
            7,
            64,
            "flash-attn 2 needs a GPU of compute capability 8.0 or more, got 7.x; choose auto or sdpa",
        ),
        (
            False,
            8,
            264,
            "flash-attn 2 takes heads up to 256 wide, got 264; choose auto or sdpa",
        ),
        (
            True,
            8,
            64,
            "flash_attn.cute needs a GPU of compute capability 9.0 or more, got 8.x; choose auto or sdpa",
        ),
        (
            True,
            9,
            12,
            "flash_attn.cute takes heads up to 128 wide in steps of 8, got 12; choose auto or sdpa",
        ),
        (
            True,
            10,
            136,
            "flash_attn.cute takes heads up to 128 wide in steps of 8, got 136; choose auto or sdpa",
        ),
    ],
)
def test_flash_is_asked_for_nothing_that_it_asserts_against(
    monkeypatch: pytest.MonkeyPatch, newer: bool, capability: int, width: int, says: str
) -> None:
    pretend_flash(monkeypatch, capability, newer=newer)
    q = torch.zeros(1, 1, 1, width)
    assert choose("auto", q, dropping=False) == "sdpa"
    with pytest.raises(ValueError, match=re.escape(f"attention backend 'flash' cannot run: {says}")):
        choose("flash", q, dropping=False)


@pytest.mark.parametrize(("newer", "capability", "width"), [(False, 8, 12), (False, 9, 256), (True, 9, 128)])
def test_auto_is_flash_wherever_it_runs(
    monkeypatch: pytest.MonkeyPatch, newer: bool, capability: int, width: int
) -> None:
    pretend_flash(monkeypatch, capability, newer=newer)
    assert choose("auto", torch.zeros(1, 1, 1, width), dropping=False) == "flash"


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("backend", ["auto", "sdpa"])
def test_kernels_on_cuda_equal_the_explicit_product(backend: Backend) -> None:
    q, k, v = (x.detach().to("cuda", torch.bfloat16) for x in tensors())
    queries, keys = (Packing.of_lengths(p.counts.cuda(), p.width) for p in packings())
    out = attended(queries.unpad(q), keys.unpad(k), keys.unpad(v), queries, keys, backend=backend)
    expected = torch.stack(by_loops(*(x.double().cpu() for x in (q, k, v))))
    torch.testing.assert_close(out.double().cpu(), expected, rtol=2e-2, atol=2e-2)


def dropping(key: int, device: str) -> WeightDropout:
    return WeightDropout(KeyedDropout(0.5), key, torch.zeros(1, 1, dtype=torch.long, device=device))


class CountingGenerator:
    """What a generator on CUDA is: a seed, and how far it has been used."""

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


def test_a_generator_on_cuda_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = CountingGenerator()
    monkeypatch.setattr(attention, "_generator", lambda _: generator)
    with attention._kernel_stream(dropping(3, "cpu")):
        assert generator.state == (3, 0)
        generator.set_offset(4)
    assert generator.state == (5, 8)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])])
def test_fused_kernels_draw_by_their_key_and_leave_the_generator_as_it_was(device: str) -> None:
    def drawn() -> Tensor:
        return torch.rand(4, device=device)

    with torch.random.fork_rng():
        torch.manual_seed(3)
        by_key = drawn()
        torch.manual_seed(1)
        undisturbed = torch.cat([drawn(), drawn()])
        torch.manual_seed(1)
        first = drawn()
        with attention._kernel_stream(dropping(3, device)):
            torch.testing.assert_close(drawn(), by_key, rtol=0, atol=0)
        with pytest.raises(ZeroDivisionError), attention._kernel_stream(dropping(4, device)):
            raise ZeroDivisionError
        torch.testing.assert_close(torch.cat([first, drawn()]), undisturbed, rtol=0, atol=0)
