"""Masks that one hash draws for many are those that each would draw alone, whoever asks for them when."""

import pytest
import torch
from torch import Tensor, nn

from trainables.layers import dropout, mask_draws
from trainables.layers.attention.attend import WeightDropout
from trainables.layers.dropout import DropoutGroup, KeyedDropout, scaled, set_dropout_context
from trainables.layers.mask_draws import MaskDraws

PLACE, ROWS = torch.arange(12), torch.arange(12).reshape(3, 4)
HEADS, KEYS = 2, 5


def begun(*rates: float) -> nn.ModuleList:
    parts = nn.ModuleList(
        [KeyedDropout(rates[0], 6), KeyedDropout(rates[-1], 3), KeyedDropout(rates[0])],
    )
    set_dropout_context(parts, 1, 2)
    return parts


def schedule_all(parts: nn.ModuleList, draws: MaskDraws, place: Tensor = PLACE) -> None:
    DropoutGroup(parts[:2]).schedule(draws, place)
    WeightDropout.schedule(draws, parts[2], ROWS, HEADS, KEYS)


def taken(parts: nn.ModuleList) -> list[Tensor]:
    first, second, weights = parts
    found = weights.take_scheduled(ROWS, KEYS)
    assert found is not None
    return [first.take_mask(PLACE, 6), second.take_mask(PLACE, 3), found]


def alone(parts: nn.ModuleList) -> list[Tensor]:
    first, second, weights = parts
    dropped = WeightDropout(weights, weights.draw(), ROWS).keep(HEADS, KEYS)
    elements = [
        each.mask(each.draw(), PLACE[:, None], (3,), size) for each, size in ((first, 6), (second, 3))
    ]
    return [*elements, dropped]


@pytest.mark.parametrize("rates", [(0.3,), (0.3, 0.6)])
@pytest.mark.parametrize(
    ("most", "cached"), [(1, 1), (1, 20), (100, 50), (mask_draws.MAX_WORDS, mask_draws.CACHED_WORDS)]
)
def test_masks_of_several_calls_are_those_of_each(
    rates: tuple[float, ...], most: int, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_draws, "MAX_WORDS", most)
    monkeypatch.setattr(mask_draws, "CACHED_WORDS", cached)
    together, apart, draws = begun(*rates), begun(*rates), MaskDraws()
    for _ in range(3):
        schedule_all(together, draws)
    draws.run()
    for _ in range(3):
        for one, other in zip(taken(together), alone(apart), strict=True):
            assert one.shape == other.shape
            assert torch.equal(one, other)


def test_what_was_drawn_for_other_places_is_drawn_anew() -> None:
    parts, apart, draws = begun(0.4), begun(0.4), MaskDraws()
    for _ in range(2):
        schedule_all(parts, draws, PLACE.clone())
    draws.run()
    group = DropoutGroup(parts[:2])
    group.draw(PLACE)
    expected = alone(apart)
    assert torch.equal(parts[0].take_mask(PLACE, 6), expected[0])
    assert torch.equal(parts[1].take_mask(PLACE, 3), expected[1])
    assert parts[2].take_scheduled(ROWS.clone(), KEYS) is None


def test_calls_that_are_skipped_take_their_masks_with_them() -> None:
    parts, apart, draws = begun(0.4), begun(0.4), MaskDraws()
    schedule_all(parts, draws)
    draws.run()
    for part in (*parts, *apart):
        part.skip_to(7)
    assert torch.equal(parts[0].take_mask(PLACE, 6), alone(apart)[0])


def test_what_is_added_onto_something_is_added_to_it() -> None:
    torch.manual_seed(0)
    x, onto = (torch.randn(12, 6, requires_grad=True) for _ in "12")
    found = begun(0.4)[0](x, PLACE, onto)
    expected = onto + begun(0.4)[0](x, PLACE)
    assert torch.equal(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), (x, onto)),
        torch.autograd.grad(expected.square().sum(), (x, onto)),
        strict=True,
    ):
        assert torch.equal(one, other)
    still = KeyedDropout(0.0)
    assert torch.equal(still(x, PLACE, onto), onto + x)


@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_large_products_with_masks_are_those_of_small_ones(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, keep = torch.randn(50, 3), torch.rand(50, 3) < 0.7
    small = scaled(x, keep, scale)
    monkeypatch.setattr(dropout, "MIXED", 10)
    assert torch.equal(scaled(x, keep, scale), small)
