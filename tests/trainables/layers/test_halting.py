"""Halting computes the probabilities, costs and gradients of its equations."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.layers.halting import Decision, HaltingState, Rule, States, decide, keep

probabilities = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=12)


def next_state(halting: HaltingState, decision: Decision, **options: bool) -> HaltingState:
    """Return the halting state after a step; the hidden states of the units do not matter."""
    no_states = torch.zeros(len(decision.p), 1, dtype=halting.survival.dtype)
    return keep(halting, decision, States(no_states, no_states, no_states, None), **options)[0]


def run_unit(
    hats: list[float], threshold: float, rule: Rule, cap: int = 99, delay: int = 1
) -> tuple[HaltingState, list[float], list[bool]]:
    """Run one unit through `hats`; return its state and, for each step, its weight and whether it counts."""
    halting = HaltingState.begin(torch.tensor([cap]), torch.float64, delay)
    weights, kept = [], []
    for hat in hats:
        decision = decide(halting, torch.tensor([hat], dtype=torch.float64), threshold, rule)
        weights.append(halting.survival.item() * hat)
        halting = next_state(halting, decision)
        kept.append(bool(decision.keeps))
    return halting, weights, kept


@given(hats=probabilities, threshold=st.floats(0.05, 0.999))
def test_rules_differ_in_the_step_that_reaches_the_threshold(hats: list[float], threshold: float) -> None:
    undo, _, _ = run_unit(hats, threshold, "undo")
    prefix, _, _ = run_unit(hats, threshold, "prefix")
    assert undo.active.item() == prefix.active.item()
    assert prefix.num_kept.item() - undo.num_kept.item() == (0 if undo.active.item() else 1)
    assert 1 - undo.survival.item() < threshold
    if not prefix.active.item():
        assert 1 - prefix.survival.item() >= threshold


def test_ten_probabilities_of_one_half_reach_the_published_threshold() -> None:
    """1 - 2^-10 is the first value of 1 - 2^-n above 0.999."""
    halting, _, kept = run_unit([0.5] * 12, 0.999, "undo")
    assert halting.num_kept.item() == 9
    assert kept == [True] * 9 + [False] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.25, 0.9, 0.999, 1 - 1e-7, 1.0])
def test_threshold_test_equals_the_sum_of_probabilities(threshold: float, dtype: torch.dtype) -> None:
    greatest_survival = torch.tensor(1 - threshold, dtype=dtype)
    close_values = [
        greatest_survival * (1 + number * torch.finfo(dtype).eps) for number in range(-2000, 2000)
    ]
    survival = torch.cat(
        (torch.stack(close_values), torch.logspace(-12, 0, 500, dtype=dtype), torch.zeros(1, dtype=dtype))
    )
    halting = HaltingState.begin(torch.full_like(survival, 9).long(), dtype)
    halting = replace(halting, survival=survival)
    goes_on = decide(halting, torch.zeros_like(survival), threshold, "undo").goes_on
    assert goes_on is not None
    assert torch.equal(goes_on, 1 - survival < threshold)
