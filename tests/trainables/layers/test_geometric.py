"""Geometric attention against hand-made cases."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from trainables.layers.geometric import log_nearest_match, sinusoids

SURE, NEVER = 60.0, -60.0


def weights(logits: torch.Tensor, length: int | None = None) -> torch.Tensor:
    size = logits.shape[0]
    keys = torch.arange(size) < (size if length is None else length)
    return log_nearest_match(logits.double()[None, None], keys[None]).exp()[0, 0]


def test_the_nearest_match_wins_and_the_right_one_of_two() -> None:
    logits = torch.full((5, 5), NEVER)
    logits[2, [0, 1, 3, 4]] = SURE
    logits[0, [2, 4]] = SURE
    logits[4, [0, 3]] = SURE
    found = weights(logits)
    torch.testing.assert_close(found[2], torch.tensor([0.0, 0, 0, 1, 0]).double())
    torch.testing.assert_close(found[0], torch.tensor([0.0, 0, 1, 0, 0]).double())
    torch.testing.assert_close(found[4], torch.tensor([0.0, 0, 0, 1, 0]).double())


def test_even_odds_halve_outwards() -> None:
    found = weights(torch.zeros(5, 5))
    torch.testing.assert_close(found[2], torch.tensor([1 / 16, 1 / 4, 0, 1 / 2, 1 / 8]).double())
    torch.testing.assert_close(found[0], torch.tensor([0, 1 / 2, 1 / 4, 1 / 8, 1 / 16]).double())


@examples(20)
@given(size=st.integers(2, 9), more=st.integers(0, 4), seed=st.integers(0, 1000))
def test_rows_are_distributions_with_a_rest_and_padding_changes_nothing(
    size: int, more: int, seed: int
) -> None:
    stream = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(size + more, size + more, generator=stream, dtype=torch.float64)
    found = weights(logits, size)
    assert (found[:, size:] == 0).all()
    torch.testing.assert_close(found[:size, :size], weights(logits[:size, :size]))
    off = ~torch.eye(size, dtype=torch.bool)
    misses = torch.where(off, torch.sigmoid(-logits[:size, :size]), 1.0).prod(-1)
    torch.testing.assert_close(found[:size, :size].sum(-1), 1 - misses)


def test_far_keys_of_long_rows_keep_their_gradients_finite() -> None:
    logits = torch.full((200, 200), 20.0, requires_grad=True)
    keys = torch.ones(1, 200, dtype=torch.bool)
    log_nearest_match(logits[None, None], keys).softmax(-1).square().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_width_first_met_in_an_evaluation_can_be_trained_on() -> None:
    keys, logits = torch.ones(1, 23, dtype=torch.bool), torch.zeros(1, 1, 23, 23, requires_grad=True)
    with torch.inference_mode():
        log_nearest_match(logits, keys)
    log_nearest_match(logits, keys).exp().sum().backward()
    assert logits.grad is not None


@examples(10)
@given(size=st.integers(1, 7), seed=st.integers(0, 1000))
def test_gradients_are_those_of_finite_differences(size: int, seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 1, size, size, generator=stream, dtype=torch.float64)
    keys = torch.arange(size) < torch.tensor([size, max(1, size - 2)])[:, None]
    function = lambda x: log_nearest_match(x, keys).exp()  # noqa: E731
    assert torch.autograd.gradcheck(function, logits.requires_grad_())


def test_sinusoids_of_an_odd_width() -> None:
    found = sinusoids(torch.tensor([-2, 0]), 3)
    angle = torch.tensor(-2.0).double()
    expected = torch.stack((angle.sin(), angle.cos(), (angle * 10000 ** (-2 / 3)).sin()))
    torch.testing.assert_close(found[0], expected)
    torch.testing.assert_close(found[1], torch.tensor([0.0, 1, 0]).double())
