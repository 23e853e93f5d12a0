"""Common interface of the attention kernels; all tensors are (batch, tokens, heads, head width).

`math` is the explicit product, `sdpa` is PyTorch's fused kernels, and `flash` is a FlashAttention kernel on
tokens without padding (`layers.attention.flash`): flash-attn if it is installed, else PyTorch's own. `auto`
uses `flash` where it can run (16-bit tensors, a recent GPU, a supported head width) and `sdpa` elsewhere.

Dropout of attention weights: on a CPU, the keyed masks of `layers.dropout`, through `math`. On CUDA, the
fused kernels draw their own masks from a generator seeded with the same key. These masks are deterministic
but depend on the padded shape, so early-exit modes agree there only in distribution. With `math` they agree
exactly.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from trainables.layers.attention.explicit import KeptWeights, LogitMask, OffsetBias, explicit
from trainables.layers.attention.flash import FlashKernel, PackedRows, usable_kernel
from trainables.layers.constant_shapes import constant_shapes
from trainables.layers.dropout import KeyedDropout
from trainables.layers.head_rows import pad_head_parts, pad_heads, unpad_heads
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues

Backend = Literal["auto", "sdpa", "flash", "math"]
Kernel = Literal["sdpa", "flash", "math"]
GAPS_ERROR = (
    "FlashAttention cannot skip halted tokens with a causal mask; choose auto or sdpa, or early_exit: batch"
)
BIAS_ERROR = "FlashAttention does not support biases of relative positions; choose auto, sdpa or math"


@dataclass(frozen=True)
class WeightDropout:
    """Dropout of attention weights in one call."""

    dropout: KeyedDropout
    key: int
    place: Int[Tensor, "B T"]
    """Place of each query in the full batch."""

    @property
    def rate(self) -> float:
        """Share of weights that are dropped."""
        return 1 - self.dropout.keep_share()

    def keep_and_scale(self, heads: int, keys: int) -> KeptWeights:
        """Return the keyed mask and the scale of the kept weights."""
        # Each word serves two keys.
        words = heads, 1, (keys + 1) // 2
        keep = self.dropout.mask(self.key, self.place[:, None, :, None], words, keys)
        return KeptWeights(keep, self.dropout.scale)


_Padded = tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H K E"], Float[Tensor, "B H K E"]]
"""Queries, keys and values."""


def attend_packed(
    q: Float[Tensor, "M H E"],
    keys_values: KeysValues,
    queries: Packing,
    *,
    num_visible: Int[Tensor, " M"] | None = None,
    bias: OffsetBias | None = None,
    dropout: WeightDropout | None = None,
    backend: Backend = "auto",
) -> Float[Tensor, "M H E"]:
    """Return softmax(q k^T / sqrt(E)) v: row i of `queries` attends to row i of `keys_values`.

    With `num_visible`, `queries` must be a subset of the tokens in `keys_values`, in order. Each query then
    attends to the keys up to its own. In this case `flash` requires that all tokens are queries.

    Args:
        q: Packed queries, (tokens, heads, head width).
        keys_values: Keys and values.
        queries: Packing of the queries.
        num_visible: Number of first keys of its row that each query attends to; None: all.
        bias: Added to the padded logits; not supported by `flash`.
        dropout: Dropout of attention weights, if any.
        backend: Value of the setting `attention`.

    Raises:
        ValueError: If `backend` names a kernel that cannot run here.
    """
    keys = keys_values.packing
    has_all_tokens = (num_visible is None or q.shape[0] == keys_values.both.shape[0]) and not keys.padded
    kernel = choose(
        backend, q, has_dropout=dropout is not None, has_bias=bias is not None, has_all_tokens=has_all_tokens
    )
    if kernel == "flash":
        k, v = keys_values.both.unbind(1)
        return _attend_flash(q, k, v, (queries, keys), dropout, causal=num_visible is not None)
    k, v = keys_values.padded.unbind(0)
    return _attend_padded(
        (pad_heads(q, queries), k, v),
        (queries, keys),
        kernel,
        num_visible=num_visible,
        bias=bias,
        dropout=dropout,
    )


def attend_within_rows(
    qkv: Float[Tensor, "M 3 H E"],
    packing: Packing,
    *,
    num_visible: Int[Tensor, " M"] | None = None,
    dropout: WeightDropout | None = None,
    backend: Backend = "auto",
) -> Float[Tensor, "M H E"]:
    """Return the attention output of each token over its own row, as `attend_packed`, with fewer copies.

    Args:
        qkv: Queries, keys and values side by side, (tokens, 3, heads, head width).
        packing: Packing of the tokens.
        num_visible: Number of first tokens of its row that each token attends to; None: all.
        dropout: Dropout of attention weights, if any.
        backend: Value of the setting `attention`.

    Raises:
        ValueError: If `backend` names a kernel that cannot run here.
    """
    kernel = choose(backend, qkv, has_dropout=dropout is not None, has_all_tokens=not packing.padded)
    if kernel == "flash":
        q, k, v = qkv.unbind(1)
        return _attend_flash(q, k, v, (packing, packing), dropout, causal=num_visible is not None)
    q, k, v = pad_head_parts(qkv, packing).unbind(0)
    return _attend_padded(
        (q, k, v), (packing, packing), kernel, num_visible=num_visible, bias=None, dropout=dropout
    )


def _attend_padded(
    rows: _Padded,
    packings: tuple[Packing, Packing],
    kernel: Kernel,
    *,
    num_visible: Int[Tensor, " M"] | None,
    bias: OffsetBias | None,
    dropout: WeightDropout | None,
) -> Float[Tensor, "M H E"]:
    """Return the packed attention output of queries, keys and values in the padded layout."""
    queries, keys = packings
    logit_mask = _logit_mask(queries, keys, num_visible, rows[0])
    if kernel == "math":
        kept_weights = None if dropout is None else dropout.keep_and_scale(rows[0].shape[1], keys.width)
        return unpad_heads(explicit(*rows, (queries, keys), bias, logit_mask, kept_weights), queries)
    table = None if bias is None else bias.table()
    if logit_mask is not None and table is not None:
        logit_mask = logit_mask + table
    elif logit_mask is None:
        logit_mask = table
    return unpad_heads(_attend_fused(rows, logit_mask, dropout), queries)


def _logit_mask(
    queries: Packing, keys: Packing, num_visible: Int[Tensor, " M"] | None, q: Float[Tensor, "B H T E"]
) -> LogitMask | None:
    """Return the mask that is added to logits; layers that run on the same tokens share it."""
    heads, dtype = q.shape[1], q.dtype
    if num_visible is not None:
        # Padding repeats the reach of the last token, so that it attends to at least one key. A softmax over
        # no keys has an undefined gradient instead of a zero one.
        def build() -> tuple[Tensor, Tensor]:
            columns = torch.arange(keys.width, device=q.device)
            upto = num_visible.index_select(0, queries.padded_index.flatten()).view(-1, queries.width, 1)
            return num_visible, additive_mask((columns < upto)[:, None], dtype)

        # The cache keeps a reference to `num_visible`, so that no other tensor can have the same `id`.
        return queries.get_cached(("reach", id(num_visible), keys.width, dtype), build)[1]  # type: ignore[no-any-return]
    if keys.is_dense and not keys.padded:
        return None
    return keys.get_cached(  # type: ignore[no-any-return]
        ("barred", heads, dtype),
        lambda: additive_mask(keys.mask[:, None, None], dtype).expand(-1, heads, -1, -1).contiguous(),
    )


def choose(
    backend: Backend, q: Tensor, *, has_dropout: bool, has_bias: bool = False, has_all_tokens: bool = True
) -> Kernel:
    """Return the kernel that `backend` selects for tensors like `q`.

    Args:
        backend: Value of the setting `attention`.
        q: A tensor with the device, type and head width of the queries.
        has_dropout: Whether attention weights are dropped.
        has_bias: Whether a bias is added to the logits.
        has_all_tokens: Whether every token is a query and no key is padding, as flash-attn requires.

    Raises:
        ValueError: If the kernel cannot run.
    """
    if backend == "math":
        return "math"
    if backend in ("auto", "flash"):
        fault = (
            BIAS_ERROR if has_bias else flash_fault(q.device.type, q.dtype) if has_all_tokens else GAPS_ERROR
        )
        if fault is None:
            usable = usable_kernel(q.shape[-1], _capability(q.device), has_dropout=has_dropout)
            if isinstance(usable, FlashKernel):
                return "flash"
            fault = usable
        if backend == "flash":
            raise ValueError(f"attention backend 'flash' cannot run: {fault}")
    return "math" if (has_dropout or has_bias) and not q.is_cuda else "sdpa"


@cache
def plan_no_shapes() -> None:
    """Restrict PyTorch to fused kernels that run any shape without planning.

    On Hopper, PyTorch prefers the 16-bit kernel of cuDNN, which plans each new shape
    (pytorch/pytorch#155958). Batches of texts, and the tokens that remain active in them, rarely have the
    same shape twice.
    """
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def flash_fault(device: str, dtype: torch.dtype) -> str | None:
    """Return why no FlashAttention kernel supports this device and dtype, with a remedy; None if one does.

    Args:
        device: Type of the device, e.g. "cuda".
        dtype: Type of queries, keys and values.
    """
    if device != "cuda":
        return f"FlashAttention needs tensors on CUDA, got device={device}; choose auto or sdpa"
    if dtype not in (torch.float16, torch.bfloat16):
        return (
            f"FlashAttention needs 16-bit tensors, got dtype={dtype}; set train.precision: bf16,"
            " or choose auto or sdpa"
        )
    return None


def chosen_kernel(
    backend: Backend,
    device: str,
    dtype: torch.dtype,
    width: int,
    *,
    has_dropout: bool,
    has_bias: bool = False,
) -> tuple[str, str]:
    """Return the name of the kernel that attention runs on such tensors, and the reason for this choice.

    The compute capability of the GPU is not checked. Kernels that are not installed are not considered.

    Args:
        backend: Value of the setting.
        device: Type of the device, e.g. "cuda".
        dtype: Type of queries, keys and values.
        width: Size of one head.
        has_dropout: Whether attention weights are dropped.
        has_bias: Whether positions add to logits.
    """
    choice = "asked for" if backend != "auto" else ""
    if backend == "math":
        return "math", choice
    fault = BIAS_ERROR if has_bias else flash_fault(device, dtype)
    usable = usable_kernel(width, None, has_dropout=has_dropout) if fault is None else fault
    if backend != "sdpa" and isinstance(usable, FlashKernel):
        return usable.name, choice or "in 16 bits on CUDA"
    reason = choice or str(usable).partition(";")[0]
    if (has_dropout or has_bias) and device != "cuda":
        return "math", "weights are dropped on a CPU" if has_dropout else "positions add to logits on a CPU"
    return "sdpa of PyTorch", reason


_LogitTerms = Float[Tensor, "B #H #T K"]
"""Numbers that are added to logits."""


def _attend_fused(
    qkv: _Padded, logit_terms: _LogitTerms | None, dropout: WeightDropout | None
) -> Float[Tensor, "B H T E"]:
    """Return the attention output of PyTorch's fused kernels."""
    with _kernel_stream(dropout):
        return F.scaled_dot_product_attention(
            *qkv, attn_mask=logit_terms, dropout_p=0.0 if dropout is None else dropout.rate
        )


def additive_mask(mask: Bool[Tensor, "B 1 #T K"], dtype: torch.dtype) -> Float[Tensor, "B 1 #T K"]:
    """Return the values to add to logits: zero where `mask` is True, minus infinity elsewhere."""
    logit_mask = torch.full(mask.shape, float("-inf"), dtype=dtype, device=mask.device)
    return logit_mask.masked_fill_(mask, 0.0)


def _attend_flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packings: tuple[Packing, Packing],
    dropout: WeightDropout | None,
    *,
    causal: bool = False,
) -> Tensor:
    row_starts = (_starts_in_32_bits(packings[0]), _starts_in_32_bits(packings[1]))
    widths = (packings[0].width, packings[1].width)
    rows = PackedRows(q, k, v, row_starts, widths, causal, 0.0 if dropout is None else dropout.rate)
    kernel = usable_kernel(q.shape[-1], _capability(q.device), has_dropout=dropout is not None)
    assert isinstance(kernel, FlashKernel)
    with _kernel_stream(dropout):
        return kernel.run(rows)


def _starts_in_32_bits(packing: Packing) -> Int[Tensor, " B_1"]:
    """Return the starts of the rows as 32-bit integers; layers that run on the same tokens share them."""
    row_starts: Tensor = packing.get_cached("starts in 32 bits", lambda: packing.starts.to(torch.int32))
    return row_starts


def _capability(device: torch.device) -> int | None:
    """Return the major number of the GPU's compute capability; None if `device` is no GPU."""
    return torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else None


def _kernel_stream(dropout: WeightDropout | None) -> AbstractContextManager[None]:
    """Return a context that seeds the generator of fused kernels; a captured pass was seeded earlier."""
    if dropout is None or constant_shapes() is not None:
        return nullcontext()
    return seeded_generator(dropout.key, dropout.place.device)


@contextmanager
def seeded_generator(key: int, device: torch.device) -> Iterator[None]:
    """Seed the default generator of `device` by `key` within the context and restore it afterwards.

    Only this generator is saved. PyTorch's fork also saves that of the CPU, which takes the host as long as
    launching ten kernels. On CUDA the state consists of a seed and an offset.
    """
    generator = _generator(device)
    counts = generator.device.type == "cuda"
    previous_state = (generator.initial_seed(), generator.get_offset()) if counts else generator.get_state()
    generator.manual_seed(key)
    try:
        yield
    finally:
        if isinstance(previous_state, tuple):
            generator.manual_seed(previous_state[0])
            generator.set_offset(previous_state[1])
        else:
            generator.set_state(previous_state)


def _generator(device: torch.device) -> torch.Generator:
    """Return PyTorch's default generator of a device."""
    if device.type != "cuda":
        return torch.default_generator
    generators: tuple[torch.Generator, ...] = torch.cuda.default_generators
    return generators[torch.cuda.current_device() if device.index is None else device.index]
