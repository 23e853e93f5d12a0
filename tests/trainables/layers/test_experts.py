"""Grouped products of experts equal single products, and experts are drawn by their probabilities."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.numerics.pretended_gpu import PretendedGpu, on_gpu
from trainables.assembly import initialise
from trainables.layers import experts
from trainables.layers.dropout import set_dropout_context
from trainables.layers.experts import ExpertFeedForward, ExpertLinear, ExpertRows, FeedforwardSettings
from trainables.layers.packing import Packing
from trainables.layers.tokens import PlacedVectors, packed_places

WIDTH = 6


def initialise_double(module: nn.Module) -> Any:
    initialise(module, 3)
    return module.double().eval()


def tokens(number: int, seed: int = 0) -> tuple[Tensor, PlacedVectors]:
    x = torch.randn(number, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    packing = Packing.of_lengths(torch.tensor([number]), number)
    return x.requires_grad_(), PlacedVectors(packing, packed_places(packing))


def rows_of(counts: list[int]) -> ExpertRows:
    return ExpertRows(torch.tensor(counts), sum(counts))


GROUPED = {
    "uneven": [3, 10, 5, 1],
    "experts without rows": [0, 7, 11, 0],
    "multiples of the alignment": [8, 16, 8, 8],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("counts", GROUPED.values(), ids=GROUPED)
def test_grouped_products_equal_one_product_for_each_expert(
    counts: list[int], bias: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = initialise_double(ExpertLinear(4, 16, 24, bias=bias)).to(dtype)
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(sum(counts), 16, generator=stream).to(dtype).requires_grad_()
    grad = torch.randn(sum(counts), 24, generator=stream).to(dtype)
    passes = []
    for grouped in (True, False):
        monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_, there=grouped: there)
        y = maps(x, rows_of(counts))
        passes.append([y, *torch.autograd.grad(y, (x, *maps.parameters()), grad)])
    # In few bits, a product and its bias are rounded together on one side and one after the other here.
    close = {} if dtype == torch.float32 else {"rtol": 0.016, "atol": 1e-3}
    for actual, expected_tensor in zip(*passes, strict=True):
        torch.testing.assert_close(actual, expected_tensor, **close)
    if not bias:
        return
    for gradient in passes[0][-2:]:
        assert [bool(gradient_of_expert.any()) for gradient_of_expert in gradient] == [
            count > 0 for count in counts
        ]


def test_gradients_of_experts_without_rows_are_zero_whatever_the_kernel_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product = F.grouped_mm

    def fill_with_nan(actual: Tensor, expected_tensor: Tensor, *, offs: Tensor) -> Tensor:
        result = product(actual, expected_tensor, offs=offs)
        return result.index_fill(0, torch.tensor([1]), float("nan")) if result.dim() == 3 else result

    monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_: True)
    monkeypatch.setattr(experts.F, "grouped_mm", fill_with_nan)
    maps = initialise_double(ExpertLinear(3, 8, 8, bias=True)).float()
    maps(torch.randn(5, 8), rows_of([2, 0, 3])).square().sum().backward()
    for parameter in maps.parameters():
        assert parameter.grad.isfinite().all()
        assert not parameter.grad[1].any()


@pytest.mark.parametrize(
    ("dtype", "sizes", "capability", "grouped"),
    [
        (torch.bfloat16, (4, 16, 24), (9, 0), True),
        (torch.bfloat16, (4, 16, 24), (8, 0), False),
        (torch.bfloat16, (4, 16, 24), (12, 0), False),
        (torch.bfloat16, (4, 16, 20), (9, 0), False),
        (torch.bfloat16, (1024, 8, 8), (9, 0), False),
        (torch.float32, (4, 16, 24), (9, 0), False),
    ],
)
def test_grouped_products_run_only_where_no_pass_waits_for_them(
    dtype: torch.dtype,
    sizes: tuple[int, ...],
    capability: tuple[int, int],
    grouped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    experts._device_has_grouped_kernel.cache_clear()
    weight = torch.empty(sizes)
    assert not experts.has_grouped_kernel(weight, dtype), "it is on the CPU"
    with PretendedGpu():
        assert experts.has_grouped_kernel(on_gpu(weight), dtype) == grouped
    experts._device_has_grouped_kernel.cache_clear()
    monkeypatch.delattr(F, "grouped_mm", raising=False)
    with PretendedGpu():
        assert not experts.has_grouped_kernel(on_gpu(weight), dtype), "this PyTorch has no such function"
    experts._device_has_grouped_kernel.cache_clear()


def test_drawn_experts_have_shares_equal_to_their_probabilities() -> None:
    """Four experts are drawn without replacement; the standard errors of their shares are below 0.0056."""
    number = 8000
    mixture = FeedforwardSettings(experts=5, active=3, sampled=2, width=2)
    module = initialise_double(ExpertFeedForward(WIDTH, mixture, 0.0, 0.0))
    module.router.outer.weight.data.mul_(3.0)
    x = tokens(1)[0].detach().expand(number, -1)
    placed_tokens = tokens(number)[1]
    expected, _ = module(x, placed_tokens)
    set_dropout_context(module.train(), 1, 0)
    routing = module.router(x, placed_tokens)
    p = routing.log_probabilities[0].exp().tolist()
    best, *drawn_experts = sorted(range(5), key=lambda e: -p[e])
    assert (routing.chosen[:, 0] == best).all()
    other_probability = 1 - p[best]
    for expert in drawn_experts:
        first = p[expert] / other_probability
        second = sum(
            p[e] / other_probability * p[expert] / (other_probability - p[e])
            for e in drawn_experts
            if e != expert
        )
        shares = (routing.chosen == expert).double().mean(0)
        assert shares.tolist() == pytest.approx([0, first, second], abs=0.028)
    torch.testing.assert_close(routing.gates.sum(1), torch.ones(number).double(), atol=1e-5, rtol=0)
    chosen_probabilities = routing.log_probabilities.exp().gather(1, routing.chosen)
    torch.testing.assert_close(
        routing.gates, chosen_probabilities / (chosen_probabilities.sum(1, keepdim=True) + 1e-6)
    )
    assert torch.equal(module.eval()(x, placed_tokens)[0], expected), "evaluation must draw no experts"


@pytest.mark.parametrize(("active", "sampled", "fault"), [(4, 0, "active=4"), (2, 3, "sampled=3")])
def test_more_experts_than_there_are_raise_an_error(active: int, sampled: int, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        FeedforwardSettings(experts=3, active=active, sampled=sampled)
