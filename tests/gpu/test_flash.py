"""flash-attn, whichever version is installed, computes what the explicit product computes."""

import pytest
import torch
from torch import Tensor

from tests.gpu.devices import REASON
from trainables.layers.attention import Backend, attend_packed, flash_installed
from trainables.layers.packing import Packing
from trainables.layers.tokens import KeysValues

HEADS, SIZE = 4, 64
LENGTHS = {"ragged": (17, 1, 64, 5), "dense": (32, 32), "one": (1,)}
needs_flash = pytest.mark.skipif(
    not (torch.cuda.is_available() and flash_installed()), reason=f"{REASON} and flash-attn"
)
pytestmark = [pytest.mark.gpu, needs_flash]


def packed(lengths: tuple[int, ...], seed: int) -> tuple[Tensor, Packing]:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(lengths), HEADS, SIZE, generator=stream).to("cuda", torch.bfloat16)
    return x.requires_grad_(), Packing.of_lengths(torch.tensor(lengths, device="cuda"), max(lengths))


def passes(backend: Backend, lengths: tuple[int, ...], *, causal: bool, cross: bool) -> list[Tensor]:
    """Output and gradients, in 32 bits."""
    q, queries = packed(lengths, 0)
    others = tuple(reversed(lengths)) if cross else lengths
    (k, keys), (v, _) = packed(others, 1), packed(others, 2)
    reach = queries.column + 1 if causal else None
    out = attend_packed(q, KeysValues(k, v, keys), queries, reach=reach, backend=backend)
    grads = torch.autograd.grad(out.float().square().sum(), (q, k, v))
    return [each.detach().float() for each in (out, *grads)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(("causal", "cross"), [(False, False), (True, False), (False, True)])
def test_flash_equals_the_explicit_product(lengths: tuple[int, ...], causal: bool, cross: bool) -> None:
    theirs = passes("flash", lengths, causal=causal, cross=cross)
    ours = passes("math", lengths, causal=causal, cross=cross)
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2)
