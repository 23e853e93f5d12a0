"""A usable FlashAttention kernel is chosen, and PyTorch's kernel gets rows without padding."""

import pytest
import torch
from torch import Tensor

from trainables.layers.attention import attend as attention
from trainables.layers.attention import flash
from trainables.layers.attention.attend import attend_packed, choose, chosen_kernel
from trainables.layers.attention.flash import PYTORCH_KERNEL, FlashKernel, PackedRows, usable_kernel
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues

LENGTHS = (3, 1, 5)


def kernel_name(kernel_or_fault: FlashKernel | str) -> str:
    assert isinstance(kernel_or_fault, FlashKernel), kernel_or_fault
    return kernel_or_fault.name


def test_pytorch_kernel_supports_dropout() -> None:
    for has_dropout in (False, True):
        assert kernel_name(usable_kernel(64, 8, has_dropout=has_dropout)) == PYTORCH_KERNEL
    assert isinstance(usable_kernel(12, 8, has_dropout=False), str)
    assert isinstance(usable_kernel(64, 7, has_dropout=False), str)


def by_rows(rows: PackedRows) -> Tensor:
    """Compute attention row by row, as the kernel does."""
    (first_q, first_k), (widest_q, _) = (start.tolist() for start in rows.starts), rows.widths
    assert {start.dtype for start in rows.starts} == {torch.int32}
    out = []
    for row in range(len(first_q) - 1):
        q = rows.q[first_q[row] : first_q[row + 1]]
        k, v = (tensor[first_k[row] : first_k[row + 1]] for tensor in (rows.k, rows.v))
        assert len(q) <= widest_q
        logits = torch.einsum("qhe,khe->hqk", q, k) / q.shape[-1] ** 0.5
        if rows.causal:
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), float("-inf"))
        out.append(torch.einsum("hqk,khe->qhe", logits.softmax(-1), v))
    return torch.cat(out)


@pytest.mark.parametrize("causal", [False, True])
def test_pytorch_operator_gets_rows_without_padding(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(
        *tensors_and_widths: Tensor | int, dropout_p: float, is_causal: bool, return_debug_mask: bool
    ) -> tuple[Tensor]:
        assert not return_debug_mask
        q, k, v, starts_q, starts_k, width_q, width_k = tensors_and_widths
        return (by_rows(PackedRows(q, k, v, (starts_q, starts_k), (width_q, width_k), is_causal, dropout_p)),)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    packing = Packing.of_lengths(torch.tensor(LENGTHS), max(LENGTHS))
    stream = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(sum(LENGTHS), 2, 8, generator=stream) for _ in range(3))
    num_visible = packing.column + 1 if causal else None
    output, expected = (
        attend_packed(q, KeysValues.of(k, v, packing), packing, num_visible=num_visible, backend=backend)
        for backend in ("flash", "math")
    )
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize(
    ("device", "dtype", "has_dropout", "has_bias", "name"),
    [
        ("cuda", torch.bfloat16, False, False, PYTORCH_KERNEL),
        ("cuda", torch.bfloat16, True, False, PYTORCH_KERNEL),
        ("cuda", torch.bfloat16, True, True, "sdpa of PyTorch"),
        ("cuda", torch.float32, True, False, "sdpa of PyTorch"),
        ("cpu", torch.bfloat16, False, False, "sdpa of PyTorch"),
        ("cpu", torch.float32, True, False, "math"),
    ],
)
def test_chosen_kernel_is_named_with_a_reason(
    device: str, dtype: torch.dtype, has_dropout: bool, has_bias: bool, name: str
) -> None:
    kernel_, reason = chosen_kernel("auto", device, dtype, 64, has_dropout=has_dropout, has_bias=has_bias)
    assert kernel_ == name
    assert reason


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "device=cpu"),
        ({"has_all_tokens": False}, "early_exit: batch"),
        ({"has_bias": True}, "sdpa .*math"),
    ],
)
def test_flash_that_cannot_run_raises_an_error(options: dict[str, bool], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        choose("flash", torch.zeros(1, 1, 1, 8), has_dropout=False, **options)


def test_missing_kernel_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_fault", lambda device, dtype: None)
    monkeypatch.setattr(flash, "flash_kernels", lambda: ())
    with pytest.raises(ValueError, match=r"'flash'.*pip install 'haltsweep"):
        choose("flash", torch.zeros(1, 1, 1, 8), has_dropout=False)
