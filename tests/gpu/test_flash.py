"""Every installed FlashAttention kernel equals the explicit product, and drops weights by its key."""

import pytest
import torch
from torch import Tensor

from tests.gpu.devices import REASON
from trainables.layers.attention import flash
from trainables.layers.attention.attend import Backend, WeightDropout, attend_packed
from trainables.layers.dropout import KeyedDropout
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues

HEADS, SIZE = 4, 64
LENGTHS = {"ragged": (17, 1, 64, 5), "dense": (32, 32), "one": (1,)}
KERNELS = {tensor.name: tensor for tensor in flash.flash_kernels()}
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=REASON)]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> flash.FlashKernel:
    """The only available kernel."""
    flash_kernel = KERNELS[request.param]
    monkeypatch.setattr(flash, "flash_kernels", lambda: (flash_kernel,))
    return flash_kernel


def packed(lengths: tuple[int, ...], seed: int) -> tuple[Tensor, Packing]:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(lengths), HEADS, SIZE, generator=stream).to("cuda", torch.bfloat16)
    return x.requires_grad_(), Packing.of_lengths(torch.tensor(lengths, device="cuda"), max(lengths))


def passes(backend: Backend, lengths: tuple[int, ...], *, causal: bool, cross: bool) -> list[Tensor]:
    """Return output and gradients, in 32 bits."""
    q, queries = packed(lengths, 0)
    others = tuple(reversed(lengths)) if cross else lengths
    (k, keys), (v, _) = packed(others, 1), packed(others, 2)
    num_visible = queries.column + 1 if causal else None
    out = attend_packed(q, KeysValues.of(k, v, keys), queries, num_visible=num_visible, backend=backend)
    grads = torch.autograd.grad(out.float().square().sum(), (q, k, v))
    return [tensor.detach().float() for tensor in (out, *grads)]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(("causal", "cross"), [(False, False), (True, False), (False, True)])
def test_flash_equals_the_explicit_product(lengths: tuple[int, ...], causal: bool, cross: bool) -> None:
    flash_values = passes("flash", lengths, causal=causal, cross=cross)
    explicit_values = passes("math", lengths, causal=causal, cross=cross)
    for actual, expected in zip(flash_values, explicit_values, strict=True):
        torch.testing.assert_close(actual, expected, rtol=3e-2, atol=3e-2)


def test_dropped_weights_depend_on_the_key(kernel: flash.FlashKernel) -> None:
    if not kernel.supports_dropout:
        pytest.skip(f"{kernel.name} cannot drop weights")
    (q, packing), (k, _), (v, _) = (packed(LENGTHS["ragged"], seed) for seed in range(3))

    def dropped(key: int) -> Tensor:
        dropout = WeightDropout(KeyedDropout(0.5), key, packing.padded_index)
        keys_values = KeysValues.of(k, v, packing)
        return attend_packed(q, keys_values, packing, dropout=dropout, backend="flash").detach()

    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))
