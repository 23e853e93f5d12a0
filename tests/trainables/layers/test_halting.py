"""Halting computes the probabilities, costs and gradients of its equations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, Rule, States, decide, keep
from trainables.layers.packing import Packing

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
    weights, is_kept = [], []
    for hat in hats:
        decision = decide(halting, torch.tensor([hat], dtype=torch.float64), threshold, rule)
        weights.append(halting.survival.item() * hat)
        halting = next_state(halting, decision)
        is_kept.append(bool(decision.keeps))
    return halting, weights, is_kept


@given(hats=probabilities, threshold=st.floats(0.05, 0.999), rule=st.sampled_from(["undo", "prefix"]))
def test_weights_and_leftover_sum_to_one(hats: list[float], threshold: float, rule: Rule) -> None:
    halting, weights, is_kept = run_unit(hats, threshold, rule)
    total = sum(weight for weight, stays in zip(weights, is_kept, strict=True) if stays)
    assert total + halting.survival.item() == pytest.approx(1)


@given(hats=probabilities, threshold=st.floats(0.05, 0.999))
def test_rules_differ_in_the_step_that_reaches_the_threshold(hats: list[float], threshold: float) -> None:
    undo, _, _ = run_unit(hats, threshold, "undo")
    prefix, _, _ = run_unit(hats, threshold, "prefix")
    assert undo.active.item() == prefix.active.item()
    assert prefix.num_kept.item() - undo.num_kept.item() == (0 if undo.active.item() else 1)
    assert 1 - undo.survival.item() < threshold
    if not prefix.active.item():
        assert 1 - prefix.survival.item() >= threshold


@given(hats=probabilities, rule=st.sampled_from(["undo", "prefix"]))
def test_ponder_is_the_expected_number_of_layers(hats: list[float], rule: Rule) -> None:
    halting, weights, is_kept = run_unit(hats, 0.9, rule)
    steps = sum(is_kept)
    expected = sum(weight * (j + 1) for j, weight in enumerate(weights[:steps]))
    expected += (1 - sum(weights[:steps])) * steps
    assert halting.ponder.item() == pytest.approx(expected)
    assert 0 <= halting.ponder.item() <= steps


@given(hats=probabilities, rule=st.sampled_from(["undo", "prefix"]))
def test_without_delay_ponder_counts_the_layers_of_a_state(hats: list[float], rule: Rule) -> None:
    halting, weights, is_kept = run_unit(hats, 0.9, rule, delay=0)
    steps = sum(is_kept)
    expected = sum(weight * j for j, weight in enumerate(weights[:steps]))
    expected += (1 - sum(weights[:steps])) * steps
    assert halting.ponder.item() == pytest.approx(expected)


def test_ten_probabilities_of_one_half_reach_the_published_threshold() -> None:
    """1 - 2^-10 is the first value of 1 - 2^-n above 0.999."""
    halting, _, is_kept = run_unit([0.5] * 12, 0.999, "undo")
    assert halting.num_kept.item() == 9
    assert is_kept == [True] * 9 + [False] * 3


def test_unit_takes_no_more_steps_than_its_cap() -> None:
    halting, _, is_kept = run_unit([0.1] * 5, 0.999, "undo", cap=3)
    assert is_kept == [True] * 3 + [False] * 2
    assert not halting.active.item()


def test_gradient_of_undone_steps_is_zero() -> None:
    hats = torch.tensor([0.3, 0.4, 0.9, 0.5], dtype=torch.float64, requires_grad=True)
    halting = HaltingState.begin(torch.tensor([9]), torch.float64)
    for hat in hats:
        halting = next_state(halting, decide(halting, hat[None], 0.8, "undo"))
    (halting.ponder + halting.survival).sum().backward()
    assert (hats.grad != 0).tolist() == [True, True, False, False]


def test_survival_is_accumulated_in_32_bits() -> None:
    halting = HaltingState.begin(torch.tensor([9]), torch.bfloat16)
    small = torch.tensor([1e-3], dtype=torch.bfloat16)
    next_halting = next_state(halting, decide(halting, small, 0.999, "undo"))
    assert next_halting.survival.dtype == torch.float32
    assert next_halting.survival.item() == pytest.approx(1 - small.float().item())


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
    continues = decide(halting, torch.zeros_like(survival), threshold, "undo").continues
    assert torch.equal(continues, 1 - survival < threshold)


def select_by_hand(x: Tensor, units: list[int]) -> list[float]:
    return [x.tolist()[unit] for unit in units]


def test_selected_units_have_unchanged_states() -> None:
    halting = HaltingState.begin(torch.tensor([5, 6, 7]), torch.float64)
    decision = decide(halting, torch.tensor([0.2, 0.99, 0.4], dtype=torch.float64), 0.9, "undo")
    halting = next_state(halting, decision)
    selected = halting.select(torch.tensor([0, 2]))
    for name in ("survival", "charged_layers", "num_kept", "cap", "active"):
        assert getattr(selected, name).tolist() == select_by_hand(getattr(halting, name), [0, 2])


def test_removing_halted_units_does_not_change_the_others() -> None:
    caps, stream = torch.tensor([5, 6, 7, 2]), torch.Generator().manual_seed(0)
    all_units = HaltingState.begin(caps, torch.float64)
    active_units, indices = HaltingState.begin(caps, torch.float64), torch.arange(4)
    for number in range(1, 7):
        p = torch.rand(4, generator=stream, dtype=torch.float64) * 0.6
        all_units = next_state(all_units, decide(all_units, p, 0.7, "undo"))
        decision = decide(active_units, p[indices], 0.7, "undo")
        active_rows = decision.continues.nonzero().squeeze(1)
        indices, active_units = indices[active_rows], active_units.select(active_rows)
        active_units = next_state(active_units, decision.of_remaining(active_rows))
        for name in ("survival", "ponder", "active", "num_kept"):
            assert torch.equal(getattr(active_units, name), getattr(all_units, name)[indices]), (number, name)
        active_rows = active_units.active.nonzero().squeeze(1)
        indices, active_units = indices[active_rows], active_units.select(active_rows)
    assert not len(indices)


def compute_by_equations(halting: HaltingState, decision: Decision, states: States) -> tuple[Tensor, ...]:
    """Compute the results of `keep` by the equations as published."""

    def at_tokens(value: Tensor) -> Tensor:
        return (value if states.packing is None else value[states.packing.row])[:, None]

    weight = halting.survival * decision.p
    new_values = (
        halting.survival * (1 - decision.p),
        halting.charged_layers + weight * (halting.num_kept + halting.delay),
        states.mixed + at_tokens(weight) * states.states_before,
        states.states_after,
    )
    old_values = (halting.survival, halting.charged_layers, states.mixed, states.states_before)
    keeps, column = decision.keeps, at_tokens(decision.keeps)
    return tuple(
        torch.where(keeps if new.dim() == 1 else column, new, old)
        for new, old in zip(new_values, old_values, strict=True)
    )


@pytest.mark.parametrize("rule", ["undo", "prefix"])
@pytest.mark.parametrize("per_token", [False, True])
def test_step_has_the_gradients_of_its_equations(rule: Rule, per_token: bool) -> None:
    stream, lengths = torch.Generator().manual_seed(3), np.array([2, 4, 1])
    packing = None if per_token else Packing.of_counts(lengths, torch.device("cpu"))
    units = 7 if per_token else 3

    def number(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=stream, dtype=torch.float64).requires_grad_()

    inputs = (number(units), number(units), number(units), *(number(7, 2) for _ in range(3)))
    caps = torch.arange(2, 2 + units)
    num_kept = torch.arange(units) % 3
    start = HaltingState.begin(caps, torch.float64)
    active = torch.arange(units) % 5 != 4

    def step_arguments(
        survival: Tensor, charged_layers: Tensor, p: Tensor, *states: Tensor
    ) -> tuple[HaltingState, Decision, States]:
        halting = replace(
            start, survival=survival, charged_layers=charged_layers, active=active, num_kept=num_kept
        )
        return halting, decide(halting, p, 0.7, rule), States(*states, packing)

    def run_keep(*inputs: Tensor) -> tuple[Tensor, ...]:
        halting_after, mixed, after = keep(*step_arguments(*inputs))
        return halting_after.survival, halting_after.charged_layers, mixed, after

    values, expected = run_keep(*inputs), compute_by_equations(*step_arguments(*inputs))
    for actual, expected_value in zip(values, expected, strict=True):
        torch.testing.assert_close(actual, expected_value)
    weights = [torch.rand(value.shape, generator=stream, dtype=torch.float64) for value in values]
    grads, expected_grads = (torch.autograd.grad(each, inputs, weights) for each in (values, expected))
    for actual, expected_value in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(actual, expected_value)
    assert torch.autograd.gradcheck(run_keep, inputs)
