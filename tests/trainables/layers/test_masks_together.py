"""Masks drawn by one hash for many calls equal the masks that each call draws by itself."""

import pytest
import torch
from torch import Tensor, nn

from trainables.layers import dropout, mask_draws
from trainables.layers.attention.attend import WeightDropout
from trainables.layers.dropout import DropoutGroup, KeyedDropout, scaled, set_dropout_context
from trainables.layers.mask_draws import MaskDraws

PLACE, ROWS = torch.arange(12), torch.arange(12).reshape(3, 4)
HEADS, KEYS = 2, 5


def build_dropouts(*rates: float) -> nn.ModuleList:
    parts = nn.ModuleList(
        [KeyedDropout(rates[0], 6), KeyedDropout(rates[-1], 3), KeyedDropout(rates[0])],
    )
    set_dropout_context(parts, 1, 2)
    return parts


def schedule_all(parts: nn.ModuleList, draws: MaskDraws, place: Tensor = PLACE) -> None:
    DropoutGroup(parts[:2]).schedule(draws, place)
    WeightDropout.schedule(draws, parts[2], ROWS, HEADS, KEYS)


def scheduled_masks(parts: nn.ModuleList) -> list[Tensor]:
    first, second, weights = parts
    found = weights.take_scheduled(ROWS, KEYS)
    assert found is not None
    return [first.take_mask(PLACE, 6), second.take_mask(PLACE, 3), found]


def single_masks(parts: nn.ModuleList) -> list[Tensor]:
    first, second, weights = parts
    dropped = WeightDropout(weights, weights.draw(), ROWS).keep(HEADS, KEYS)
    elements = [
        each.mask(each.draw(), PLACE[:, None], (3,), size) for each, size in ((first, 6), (second, 3))
    ]
    return [*elements, dropped]


@pytest.mark.parametrize("rates", [(0.3,), (0.3, 0.6)])
@pytest.mark.parametrize(
    ("max_words", "cached_words"),
    [(1, 1), (1, 20), (100, 50), (mask_draws.MAX_WORDS, mask_draws.CACHED_WORDS)],
)
def test_scheduled_masks_equal_masks_of_single_calls(
    rates: tuple[float, ...], max_words: int, cached_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_draws, "MAX_WORDS", max_words)
    monkeypatch.setattr(mask_draws, "CACHED_WORDS", cached_words)
    scheduled, unscheduled, draws = build_dropouts(*rates), build_dropouts(*rates), MaskDraws()
    for _ in range(3):
        schedule_all(scheduled, draws)
    draws.run()
    for _ in range(3):
        for mask, expected in zip(scheduled_masks(scheduled), single_masks(unscheduled), strict=True):
            assert mask.shape == expected.shape
            assert torch.equal(mask, expected)


def test_masks_scheduled_for_other_places_are_drawn_again() -> None:
    parts, unscheduled, draws = build_dropouts(0.4), build_dropouts(0.4), MaskDraws()
    for _ in range(2):
        schedule_all(parts, draws, PLACE.clone())
    draws.run()
    group = DropoutGroup(parts[:2])
    group.draw(PLACE)
    expected = single_masks(unscheduled)
    assert torch.equal(parts[0].take_mask(PLACE, 6), expected[0])
    assert torch.equal(parts[1].take_mask(PLACE, 3), expected[1])
    assert parts[2].take_scheduled(ROWS.clone(), KEYS) is None


def test_skipped_calls_discard_their_scheduled_masks() -> None:
    parts, unscheduled, draws = build_dropouts(0.4), build_dropouts(0.4), MaskDraws()
    schedule_all(parts, draws)
    draws.run()
    for part in (*parts, *unscheduled):
        part.skip_to(7)
    assert torch.equal(parts[0].take_mask(PLACE, 6), single_masks(unscheduled)[0])


def test_dropout_adds_its_output_to_a_tensor() -> None:
    torch.manual_seed(0)
    x, summand = (torch.randn(12, 6, requires_grad=True) for _ in "12")
    total = build_dropouts(0.4)[0](x, PLACE, summand)
    expected = summand + build_dropouts(0.4)[0](x, PLACE)
    assert torch.equal(total, expected)
    for grad, expected_grad in zip(
        torch.autograd.grad(total.square().sum(), (x, summand)),
        torch.autograd.grad(expected.square().sum(), (x, summand)),
        strict=True,
    ):
        assert torch.equal(grad, expected_grad)
    no_dropout = KeyedDropout(0.0)
    assert torch.equal(no_dropout(x, PLACE, summand), summand + x)


@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_large_products_with_masks_equal_small_ones(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, keep = torch.randn(50, 3), torch.rand(50, 3) < 0.7
    small = scaled(x, keep, scale)
    monkeypatch.setattr(dropout, "MIXED", 10)
    assert torch.equal(scaled(x, keep, scale), small)
