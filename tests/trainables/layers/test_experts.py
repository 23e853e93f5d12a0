"""Mixtures of experts equal a loop over tokens, call only used experts, and have exact balance costs."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.numerics.pretended_gpu import PretendedGpu, on_gpu
from tests.support.specs.examples import examples
from trainables.assembly import initialise
from trainables.layers import experts
from trainables.layers.dropout import set_dropout_context
from trainables.layers.experts import (
    ExpertFeedForward,
    ExpertLinear,
    ExpertRows,
    FeedforwardSettings,
    Routing,
    Use,
    mutual_information_loss,
    pair_places,
    switch_loss,
)
from trainables.layers.packing import Packing
from trainables.layers.tokens import Placed, packed_places

WIDTH = 6


def built(module: nn.Module) -> Any:
    initialise(module, 3)
    return module.double().eval()


def feedforward(experts: int = 5, active: int = 2, inner: int = 3, dropout: float = 0.0) -> Any:
    mixture = FeedforwardSettings(experts=experts, active=active, width=inner)
    return built(ExpertFeedForward(WIDTH, mixture, dropout, 0.0))


def tokens(number: int, seed: int = 0) -> tuple[Tensor, Placed]:
    x = torch.randn(number, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    packing = Packing.of_lengths(torch.tensor([number]), number)
    return x.requires_grad_(), Placed(packing, packed_places(packing))


def rows_of(counts: list[int]) -> ExpertRows:
    return ExpertRows(torch.tensor(counts), sum(counts))


def loop_over_tokens(module: ExpertFeedForward, x: Tensor, routing: Routing) -> Tensor:
    rows = []
    for token, chosen, gates in zip(x, routing.chosen.tolist(), routing.gates, strict=True):
        parts = []
        for expert, gate in zip(chosen, gates, strict=True):
            inner = F.gelu(module.inner.weight[expert] @ token + module.inner.bias[expert])
            parts.append(gate * (module.outer.weight[expert] @ inner + module.outer.bias[expert]))
        rows.append(torch.stack(parts).sum(0))
    return torch.stack(rows)


@examples(15)
@given(
    number=st.integers(1, 9),
    sizes=st.sampled_from([(1, 1), (2, 1), (3, 3), (5, 2), (17, 4)]),
    seed=st.integers(0, 99),
)
def test_sorted_experts_equal_a_loop_over_tokens(number: int, sizes: tuple[int, int], seed: int) -> None:
    module = feedforward(*sizes)
    x, placed = tokens(number, seed)
    output, routing = module(x, placed)
    expected = loop_over_tokens(module, x, routing)
    torch.testing.assert_close(output, expected)
    used = [x, *module.inner.parameters(), *module.outer.parameters()]
    gradients = [torch.autograd.grad(y.square().sum(), used, retain_graph=True) for y in (output, expected)]
    for grad, expected_grad in zip(*gradients, strict=True):
        torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("counts", [[4, 0, 3], [0, 0, 7], [7, 0, 0], [2, 3, 2]])
def test_experts_without_tokens_are_not_called(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    product = torch.addmm

    def counting_product(bias: Tensor, x: Tensor, columns: Tensor, *, out: Tensor) -> Tensor:
        calls.append(x.shape[0])
        return product(bias, x, columns, out=out)

    experts_ = built(ExpertLinear(3, WIDTH, 4, bias=True))
    x, _ = tokens(7)
    with monkeypatch.context() as patch:
        patch.setattr(experts.torch, "addmm", counting_product)
        y = experts_(x, rows_of(counts))
    assert calls == [count for count in counts if count]
    y.sum().backward()
    for expert, count in enumerate(counts):
        assert bool(experts_.weight.grad[expert].any()) == (count > 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("counts", [[4, 0, 1], [2, 1, 2]])
def test_gradients_of_experts_equal_finite_differences(counts: list[int], bias: bool) -> None:
    maps = built(ExpertLinear(3, WIDTH, 4, bias=bias))
    x, _ = tokens(5)

    def apply_experts(x: Tensor, *weights: Tensor) -> Tensor:
        outputs: Tensor = torch.func.functional_call(
            maps, dict(zip(names, weights, strict=True)), (x, rows_of(counts))
        )
        return outputs

    names, weights = zip(*maps.named_parameters(), strict=True)
    assert torch.autograd.gradcheck(apply_experts, (x, *weights))


def test_experts_under_autocast_have_16_bit_outputs_and_32_bit_gradients() -> None:
    maps = built(ExpertLinear(2, WIDTH, 4, bias=True)).float()
    x = tokens(5)[0].detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = maps(x, rows_of([3, 2]))
    assert y.dtype == torch.bfloat16
    parts = zip((x[:3], x[3:]), maps.weight, maps.bias, strict=True)
    expected = torch.cat([F.linear(*each) for each in parts])
    torch.testing.assert_close(y.float(), expected, rtol=0.02, atol=0.02)
    y.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == maps.weight.grad.dtype == maps.bias.grad.dtype == torch.float32


GROUPED = {
    "uneven": [3, 10, 5, 1],
    "first expert without rows": [0, 7, 11, 2],
    "last experts without rows": [9, 4, 0, 0],
    "one expert": [0, 0, 6, 0],
    "multiples of the alignment": [8, 16, 8, 8],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("counts", GROUPED.values(), ids=GROUPED)
def test_grouped_products_equal_one_product_for_each_expert(
    counts: list[int], bias: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = built(ExpertLinear(4, 16, 24, bias=bias)).to(dtype)
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
    for one, other in zip(*passes, strict=True):
        torch.testing.assert_close(one, other, **close)
    if not bias:
        return
    for gradient in passes[0][-2:]:
        assert [bool(each.any()) for each in gradient] == [count > 0 for count in counts]


def test_gradients_of_experts_without_rows_are_zero_whatever_the_kernel_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product = F.grouped_mm

    def careless(one: Tensor, other: Tensor, *, offs: Tensor) -> Tensor:
        found = product(one, other, offs=offs)
        return found.index_fill(0, torch.tensor([1]), float("nan")) if found.dim() == 3 else found

    monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_: True)
    monkeypatch.setattr(experts.F, "grouped_mm", careless)
    maps = built(ExpertLinear(3, 8, 8, bias=True)).float()
    maps(torch.randn(5, 8), rows_of([2, 0, 3])).square().sum().backward()
    for each in maps.parameters():
        assert each.grad.isfinite().all()
        assert not each.grad[1].any()


@pytest.mark.parametrize(
    ("dtype", "sizes", "capability", "grouped"),
    [
        (torch.bfloat16, (4, 16, 24), (9, 0), True),
        (torch.bfloat16, (4, 16, 24), (10, 3), True),
        (torch.bfloat16, (4, 16, 24), (8, 0), False),
        (torch.bfloat16, (4, 16, 24), (12, 0), False),
        (torch.bfloat16, (4, 16, 20), (9, 0), False),
        (torch.bfloat16, (4, 20, 16), (9, 0), False),
        (torch.bfloat16, (1024, 8, 8), (9, 0), False),
        (torch.float16, (4, 16, 24), (9, 0), False),
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


def test_router_selects_the_likeliest_experts_with_gates_summing_to_one() -> None:
    module = feedforward(experts=5, active=3)
    x, placed = tokens(8)
    routing = module.router(x, placed)
    likely = routing.log_probabilities.exp()
    torch.testing.assert_close(likely.sum(1), torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(routing.gates.sum(1), torch.ones(8, dtype=torch.float64), atol=3e-6, rtol=0)
    for row, chosen in zip(likely.tolist(), routing.chosen.tolist(), strict=True):
        assert sorted(chosen) == sorted(sorted(range(5), key=lambda e: -row[e])[:3])
    assert sum(routing.groups.host_counts) == routing.groups.rows == 8 * 3


def test_drawn_experts_have_shares_equal_to_their_probabilities() -> None:
    """Four experts are drawn without replacement; the standard errors of their shares are below 0.0056."""
    number = 8000
    mixture = FeedforwardSettings(experts=5, active=3, sampled=2, width=2)
    module = built(ExpertFeedForward(WIDTH, mixture, 0.0, 0.0))
    module.router.outer.weight.data.mul_(3.0)
    x = tokens(1)[0].detach().expand(number, -1)
    placed = tokens(number)[1]
    expected, _ = module(x, placed)
    set_dropout_context(module.train(), 1, 0)
    routing = module.router(x, placed)
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
    assert torch.equal(module.eval()(x, placed)[0], expected), "evaluation must draw no experts"


def test_single_expert_has_no_router() -> None:
    module = feedforward(experts=1, active=1)
    assert not list(module.router.parameters())
    x, placed = tokens(4)
    y, _ = module(x, placed)
    inner = F.gelu(F.linear(x, module.inner.weight[0], module.inner.bias[0]))
    torch.testing.assert_close(y, F.linear(inner, module.outer.weight[0], module.outer.bias[0]))


def test_permuted_experts_have_the_same_results() -> None:
    module, other = feedforward(), feedforward()
    order = torch.tensor([3, 0, 4, 1, 2])
    for part in (other.inner.weight, other.inner.bias, other.outer.weight, other.outer.bias):
        part.data = part.data[order]
    other.router.outer.weight.data = other.router.outer.weight.data[order]
    x, placed = tokens(9)
    (output, routing), (permuted_output, permuted) = module(x, placed), other(x, placed)
    torch.testing.assert_close(output, permuted_output)
    assert torch.equal(order[permuted.chosen], routing.chosen)
    uses = [[Use(r.log_probabilities, r.chosen, torch.ones(9).double())] for r in (routing, permuted)]
    for cost in (mutual_information_loss, switch_loss):
        torch.testing.assert_close(cost(uses[0]), cost(uses[1]))


def test_dropout_mask_depends_on_token_and_expert() -> None:
    """A token keeps its masks when other tokens halt, and has different masks in each of its experts."""
    module = feedforward(experts=3, active=3, inner=64, dropout=0.5).train()
    x, placed = tokens(6)
    set_dropout_context(module, 1, 0)
    all_outputs, _ = module(x, placed)
    set_dropout_context(module, 1, 0)
    active_rows = torch.tensor([1, 2, 5])
    active_outputs, _ = module(
        x[active_rows], Placed(Packing.of_lengths(torch.tensor([3]), 3), placed.place[active_rows])
    )
    torch.testing.assert_close(active_outputs, all_outputs[active_rows])
    routing = module.router(x, placed)
    assert pair_places(placed, routing.active).unique().numel() == 6 * 3


def use(probabilities: list[list[float]], weight: list[float] | None = None, active: int = 1) -> Use:
    table = torch.tensor(probabilities, dtype=torch.float64)
    weights = torch.ones(len(table)).double() if weight is None else torch.tensor(weight).double()
    return Use(table.log(), table.topk(active).indices, weights)


def test_mutual_information_loss_equals_hand_computed_values() -> None:
    certain = [[1 - 3e-9, 1e-9, 1e-9, 1e-9], [1e-9, 1 - 3e-9, 1e-9, 1e-9]]
    assert mutual_information_loss([use(certain)]).item() == pytest.approx(-math.log(2))
    four = [[1 - 3e-9 if e == x else 1e-9 for e in range(4)] for x in range(4)]
    assert mutual_information_loss([use(four)]).item() == pytest.approx(-math.log(4))
    assert mutual_information_loss([use([[0.5, 0.3, 0.2]] * 5)]).item() == pytest.approx(0)
    half = [[0.9, 0.1], [0.1, 0.9]]
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert mutual_information_loss([use(half)]).item() == pytest.approx(entropy - math.log(2))


def test_balance_cost_joins_layers_and_ignores_halted_tokens() -> None:
    first, second = [[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.3, 0.7]]
    for cost in (mutual_information_loss, switch_loss):
        torch.testing.assert_close(cost([use(first), use(second)]), cost([use(first + second)]))
        halted_cost = cost([use(first), use(second, [1.0, 0.0])])
        torch.testing.assert_close(halted_cost, cost([use(first), use(second[:1])]))


def test_switch_loss_equals_hand_computed_values() -> None:
    assert switch_loss([use([[0.5, 0.3, 0.2]] * 5)]).item() == pytest.approx(3 * 0.5)
    turns = [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]
    assert switch_loss([use(turns)]).item() == pytest.approx(1)
    both = 4 * (0.5 * 0.4 + 0.5 * 0.3)
    assert switch_loss([use([[0.4, 0.3, 0.2, 0.1]], active=2)]).item() == pytest.approx(both)


@examples(15)
@given(seed=st.integers(0, 999), experts=st.integers(2, 6), spread=st.floats(0.1, 20))
def test_balance_costs_are_within_bounds(seed: int, experts: int, spread: float) -> None:
    logits = torch.randn(7, experts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weight = torch.rand(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    table = (spread * logits).log_softmax(-1)
    information = mutual_information_loss([Use(table, table.topk(1).indices, weight)]).item()
    assert -math.log(experts) - 1e-9 <= information <= 1e-9
    assert 0 < switch_loss([Use(table, table.topk(1).indices, weight)]).item() <= experts + 1e-9


def test_more_active_experts_than_experts_raise_an_error() -> None:
    with pytest.raises(ValidationError, match="active=4 and experts=3"):
        FeedforwardSettings(experts=3, active=4)


@pytest.mark.parametrize(("experts", "active", "sampled"), [(5, 2, 3), (3, 3, 1), (1, 1, 1)])
def test_too_many_sampled_experts_raise_an_error(experts: int, active: int, sampled: int) -> None:
    with pytest.raises(ValidationError, match=rf"sampled={sampled}, active="):
        FeedforwardSettings(experts=experts, active=active, sampled=sampled)
