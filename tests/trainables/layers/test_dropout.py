"""Keyed dropout draws masks that depend only on names and places, and look like coin flips."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from trainables.layers import dropout
from trainables.layers.dropout import DropoutGroup, KeyedDropout, KeyedNoise, scaled, set_dropout_context
from trainables.layers.mask_draws import hash_numbers
from trainables.layers.tokens import batch_places


class TwoDropouts(nn.Module):
    """A module with two dropouts."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.first = KeyedDropout(rate)
        self.second = KeyedDropout(rate)


def build_dropouts(rate: float = 0.25, seed: int = 1, step: int = 2, part: int = 0) -> TwoDropouts:
    model = TwoDropouts(rate)
    set_dropout_context(model, seed, step, part)
    return model


def kept_mask(dropout: KeyedDropout, tokens: int, columns: int) -> Tensor:
    return dropout(torch.ones(tokens, columns), torch.arange(tokens)) != 0


@given(selected=st.sets(st.integers(0, 29), min_size=1), columns=st.integers(1, 9))
def test_mask_of_a_token_is_independent_of_other_tokens(selected: set[int], columns: int) -> None:
    x = torch.randn(30, columns)
    full = build_dropouts().first(x, torch.arange(30))
    selection = torch.tensor(sorted(selected))
    assert torch.equal(build_dropouts().first(x[selection], selection), full[selection])


def test_mask_depends_on_each_component_of_its_name() -> None:
    base = kept_mask(build_dropouts().first, 50, 8)
    same_dropout = build_dropouts().first
    assert torch.equal(kept_mask(same_dropout, 50, 8), base)
    other_masks = [
        kept_mask(same_dropout, 50, 8),
        kept_mask(build_dropouts().second, 50, 8),
        kept_mask(build_dropouts(seed=2).first, 50, 8),
        kept_mask(build_dropouts(step=3).first, 50, 8),
    ]
    for other_mask in other_masks:
        assert not torch.equal(other_mask, base)
    # The part does not matter, because its tokens keep their places in the batch.
    assert torch.equal(kept_mask(build_dropouts(part=1).first, 50, 8), base)


def test_places_in_a_batch_are_unique() -> None:
    assert batch_places(torch.zeros(300, 300, dtype=torch.int64)).unique().numel() == 300 * 300


@pytest.mark.parametrize("places", ["numbers", "words"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_masks_look_like_independent_coin_flips(rate: float, places: str) -> None:
    """Bounds are six standard deviations, which fails for fewer than one seed in 10^7; seeds are fixed."""
    tokens, columns = 4000, 33
    words = batch_places(torch.zeros(40, 100, dtype=torch.int64)).flatten()
    place = words if places == "words" else torch.arange(tokens)
    keep = (build_dropouts(rate).first(torch.ones(tokens, columns), place) != 0).double()
    deviation = (rate * (1 - rate)) ** 0.5
    assert abs(keep.mean() - (1 - rate)) < 6 * deviation / (tokens * columns) ** 0.5
    assert (keep.mean(0) - (1 - rate)).abs().max() < 6 * deviation / tokens**0.5
    correlation = torch.corrcoef(keep.T).fill_diagonal_(0)
    assert correlation.abs().max() < 6 / tokens**0.5
    neighbours = torch.corrcoef(torch.stack((keep[:-1].flatten(), keep[1:].flatten())))[0, 1]
    assert abs(neighbours) < 6 / (tokens * columns) ** 0.5


def test_dropout_scales_kept_elements_to_preserve_the_mean() -> None:
    x = torch.full((2000, 16), 3.0)
    out = build_dropouts(0.25).first(x, torch.arange(2000))
    assert out.unique().tolist() == pytest.approx([0.0, 4.0])
    assert out.mean().item() == pytest.approx(3.0, rel=0.02)


def test_gradient_is_zero_for_dropped_elements() -> None:
    x = torch.ones(40, 4, requires_grad=True)
    out = build_dropouts(0.5).first(x, torch.arange(40))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_evaluation_and_rate_zero_drop_nothing() -> None:
    x, place = torch.randn(5, 3), torch.arange(5)
    assert torch.equal(KeyedDropout(0.5).eval()(x, place), x)
    assert torch.equal(KeyedDropout(0.0)(x, place), x)


def test_noise_is_uniform_and_depends_on_token_and_column() -> None:
    """The greatest distance to uniform numbers exceeds 1.63 / sqrt(20000) for one seed in a hundred."""
    noise, place = KeyedNoise(), hash_numbers(torch.arange(4000))
    noise.begin(1, "noise")
    numbers = noise(place, 5)
    assert 0 < float(numbers.min()) < float(numbers.max()) < 1
    ideal = torch.linspace(0, 1, numbers.numel(), dtype=torch.float64)
    assert (numbers.flatten().sort().values - ideal).abs().max() < 1.63 / 20000**0.5
    correlations = torch.corrcoef(torch.cat((numbers, numbers.roll(1, 0)), 1).T)
    assert (correlations - torch.eye(10)).abs().max() < 0.08  # five standard errors
    assert not torch.equal(noise(place, 5), numbers)
    noise.skip_to(0)
    assert torch.equal(noise(place[7:9], 3), numbers[7:9, :3])


def test_training_without_a_stream_raises_an_error() -> None:
    with pytest.raises(ValueError, match="set_dropout_context"):
        KeyedDropout(0.5)(torch.ones(2, 2), torch.arange(2))


def test_dropout_does_not_use_the_global_generator() -> None:
    state_before = torch.random.get_rng_state()
    kept_mask(build_dropouts().first, 10, 10)
    assert torch.equal(state_before, torch.random.get_rng_state())


@pytest.mark.parametrize("rates", [(0.1, 0.5, 0.3), (0.2, 0.0, 0.2)])
def test_masks_of_a_group_equal_masks_drawn_one_by_one(rates: tuple[float, ...]) -> None:
    sizes, place = (5, 8, 1), torch.arange(30)
    parts = nn.ModuleList(KeyedDropout(rate, size) for rate, size in zip(rates, sizes, strict=True))
    inputs = [torch.randn(30, size) for size in sizes]
    set_dropout_context(parts, 1, 2)
    single_masks = [
        [part.mask(part.draw(), place[:, None], (4,), part.columns) for part in parts] for _ in "12"
    ]
    set_dropout_context(parts, 1, 2)
    group = DropoutGroup(parts)
    for masks in single_masks:
        group.draw(place)
        for part, x, keep in zip(parts, inputs, masks, strict=True):
            assert torch.equal(part(x, place), scaled(x, keep, part.scale) if part.active else x)


def test_masks_of_an_aborted_pass_are_discarded() -> None:
    model = TwoDropouts(0.5)
    model.first.columns = 4
    set_dropout_context(model, 1, 2)
    DropoutGroup(model.first).draw(torch.arange(3))
    set_dropout_context(model, 1, 3)
    new_dropouts = build_dropouts(0.5, step=3)
    x, place = torch.ones(6, 4), torch.arange(6)
    assert torch.equal(model.first(x, place), new_dropouts.first(x, place))


def test_dropout_adds_its_output_to_a_tensor() -> None:
    torch.manual_seed(0)
    x, summand = (torch.randn(12, 6, requires_grad=True) for _ in "12")
    total = build_dropouts(0.4).first(x, torch.arange(12), summand)
    expected = summand + build_dropouts(0.4).first(x, torch.arange(12))
    assert torch.equal(total, expected)
    for grad, expected_grad in zip(
        torch.autograd.grad(total.square().sum(), (x, summand)),
        torch.autograd.grad(expected.square().sum(), (x, summand)),
        strict=True,
    ):
        assert torch.equal(grad, expected_grad)
    no_dropout = KeyedDropout(0.0)
    assert torch.equal(no_dropout(x, torch.arange(12), summand), summand + x)


@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_large_products_with_masks_equal_small_ones(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, keep = torch.randn(50, 3), torch.rand(50, 3) < 0.7
    small_product = scaled(x, keep, scale)
    monkeypatch.setattr(dropout, "MIXED_PRODUCT_MAX", 10)
    assert torch.equal(scaled(x, keep, scale), small_product)
