"""On GPUs with a kernel of grouped products, experts compute what one product for each expert computes."""

import pytest
import torch
from torch import Tensor

from tests.gpu.devices import REASON
from trainables.assembly import initialise
from trainables.layers import experts
from trainables.layers.experts import ExpertLinear, ExpertRows, has_grouped_kernel

COUNTS = {"uneven": (3, 10, 5, 1), "empty": (0, 7, 0, 12), "one": (0, 0, 6, 0), "aligned": (8, 16, 8, 8)}
INPUTS, OUTPUTS = 64, 40
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=REASON)]


def passes(maps: ExpertLinear, counts: tuple[int, ...], waits: str = "default") -> list[Tensor]:
    """Output and gradients; with `waits="error"` a wait for the device raises an error."""
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(sum(counts), INPUTS, generator=stream).to("cuda", torch.bfloat16).requires_grad_()
    grad = torch.randn(sum(counts), OUTPUTS, generator=stream).to("cuda", torch.bfloat16)
    groups = ExpertRows(torch.tensor(counts, device="cuda"), sum(counts))
    torch.cuda.set_sync_debug_mode(waits)
    try:
        out = maps(x, groups)
        return [out.detach(), *torch.autograd.grad(out, (x, *maps.parameters()), grad)]
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_grouped_products_are_those_of_each_expert(
    counts: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = ExpertLinear(len(counts), INPUTS, OUTPUTS, bias=bias)
    initialise(maps, 3)
    maps = maps.to("cuda", torch.bfloat16)
    if not has_grouped_kernel(maps.weight, torch.bfloat16):
        pytest.skip("PyTorch has no kernel of grouped products for this GPU")
    grouped = passes(maps, counts, waits="error")
    monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_: False)
    for actual, expected in zip(grouped, passes(maps, counts), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=2e-3)
