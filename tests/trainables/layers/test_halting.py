"""The halting of halting, against probabilities worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainables.layers.halting import Decision, HaltingState, Rule, States, decide, keep
from trainables.layers.packing import Packing, SplitInTwo

probabilities = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=12)


def kept_by(halting: HaltingState, decision: Decision, **which: bool) -> HaltingState:
    """The halting state after a step, whatever the states of its units are."""
    nothing = torch.zeros(len(decision.p), 1, dtype=halting.survival.dtype)
    return keep(halting, decision, States(nothing, nothing, nothing, None), **which)[0]


def play(
    hats: list[float], threshold: float, rule: Rule, cap: int = 99, delay: int = 1
) -> tuple[HaltingState, list[float], list[bool]]:
    """One unit through `hats`: its halting, and for each step the weight and whether it was kept."""
    halting = HaltingState.begin(torch.tensor([cap]), torch.float64, delay)
    weights, kept = [], []
    for hat in hats:
        decision = decide(halting, torch.tensor([hat], dtype=torch.float64), threshold, rule)
        weights.append(halting.survival.item() * hat)
        halting = kept_by(halting, decision)
        kept.append(bool(decision.keeps))
    return halting, weights, kept


@given(hats=probabilities, threshold=st.floats(0.05, 0.999), rule=st.sampled_from(["undo", "prefix"]))
def test_weights_and_leftover_sum_to_one(hats: list[float], threshold: float, rule: Rule) -> None:
    halting, weights, kept = play(hats, threshold, rule)
    total = sum(weight for weight, stays in zip(weights, kept, strict=True) if stays)
    assert total + halting.survival.item() == pytest.approx(1)


@given(hats=probabilities, threshold=st.floats(0.05, 0.999))
def test_the_rules_differ_in_the_step_that_reaches_the_threshold(hats: list[float], threshold: float) -> None:
    undo, _, _ = play(hats, threshold, "undo")
    prefix, _, _ = play(hats, threshold, "prefix")
    assert undo.active.item() == prefix.active.item()
    assert prefix.kept.item() - undo.kept.item() == (0 if undo.active.item() else 1)
    assert 1 - undo.survival.item() < threshold
    if not prefix.active.item():
        assert 1 - prefix.survival.item() >= threshold


@given(hats=probabilities, rule=st.sampled_from(["undo", "prefix"]))
def test_ponder_is_the_expected_number_of_layers(hats: list[float], rule: Rule) -> None:
    halting, weights, kept = play(hats, 0.9, rule)
    steps = sum(kept)
    expected = sum(weight * (j + 1) for j, weight in enumerate(weights[:steps]))
    expected += (1 - sum(weights[:steps])) * steps
    assert halting.ponder.item() == pytest.approx(expected)
    assert 0 <= halting.ponder.item() <= steps


@given(hats=probabilities, rule=st.sampled_from(["undo", "prefix"]))
def test_without_delay_halting_on_a_state_costs_the_layers_that_made_it(
    hats: list[float], rule: Rule
) -> None:
    halting, weights, kept = play(hats, 0.9, rule, delay=0)
    steps = sum(kept)
    expected = sum(weight * j for j, weight in enumerate(weights[:steps]))
    expected += (1 - sum(weights[:steps])) * steps
    assert halting.ponder.item() == pytest.approx(expected)


def test_ten_even_chances_pass_the_published_threshold() -> None:
    """1 - 2^-10 is the first of its kind above 0.999."""
    halting, _, kept = play([0.5] * 12, 0.999, "undo")
    assert halting.kept.item() == 9
    assert kept == [True] * 9 + [False] * 3


def test_a_unit_keeps_no_more_steps_than_its_cap() -> None:
    halting, _, kept = play([0.1] * 5, 0.999, "undo", cap=3)
    assert kept == [True] * 3 + [False] * 2
    assert not halting.active.item()


def test_only_kept_steps_get_gradient() -> None:
    hats = torch.tensor([0.3, 0.4, 0.9, 0.5], dtype=torch.float64, requires_grad=True)
    halting = HaltingState.begin(torch.tensor([9]), torch.float64)
    for hat in hats:
        halting = kept_by(halting, decide(halting, hat[None], 0.8, "undo"))
    (halting.ponder + halting.survival).sum().backward()
    assert (hats.grad != 0).tolist() == [True, True, False, False]


def test_sums_are_never_in_16_bits() -> None:
    halting = HaltingState.begin(torch.tensor([9]), torch.bfloat16)
    small = torch.tensor([1e-3], dtype=torch.bfloat16)
    after = kept_by(halting, decide(halting, small, 0.999, "undo"))
    assert after.survival.dtype == torch.float32
    assert after.survival.item() == pytest.approx(1 - small.float().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.25, 0.9, 0.999, 1 - 1e-7, 1.0])
def test_the_threshold_is_told_as_by_the_sum_of_probabilities(threshold: float, dtype: torch.dtype) -> None:
    most = torch.tensor(1 - threshold, dtype=dtype)
    around = [most * (1 + number * torch.finfo(dtype).eps) for number in range(-2000, 2000)]
    survival = torch.cat(
        (torch.stack(around), torch.logspace(-12, 0, 500, dtype=dtype), torch.zeros(1, dtype=dtype))
    )
    halting = HaltingState.begin(torch.full_like(survival, 9).long(), dtype)
    halting = replace(halting, survival=survival)
    found = decide(halting, torch.zeros_like(survival), threshold, "undo").goes_on
    assert found is not None
    assert torch.equal(found, 1 - survival < threshold)


def select_by_hand(x: Tensor, units: list[int]) -> list[float]:
    return [x.tolist()[unit] for unit in units]


def test_selection_keeps_each_units_own_books() -> None:
    halting = HaltingState.begin(torch.tensor([5, 6, 7]), torch.float64)
    decision = decide(halting, torch.tensor([0.2, 0.99, 0.4], dtype=torch.float64), 0.9, "undo")
    halting = kept_by(halting, decision)
    some = halting.select(torch.tensor([0, 2]))
    for name in ("survival", "spent", "kept", "cap", "active"):
        assert getattr(some, name).tolist() == select_by_hand(getattr(halting, name), [0, 2])
    parts = halting.part(SplitInTwo(torch.tensor([0, 2, 1]), np.array([True, False, True])))
    for part, units in zip(parts, ([0, 2], [1]), strict=True):
        for name in ("survival", "spent", "kept", "cap", "active"):
            assert getattr(part, name).tolist() == select_by_hand(getattr(halting, name), units)


def test_where_units_that_cross_the_threshold_leave_the_others_books_are_the_same() -> None:
    caps, stream = torch.tensor([5, 6, 7, 2]), torch.Generator().manual_seed(0)
    books = HaltingState.begin(caps, torch.float64)
    few, there = HaltingState.begin(caps, torch.float64, alike=True), torch.arange(4)
    for number in range(1, 7):
        p = torch.rand(4, generator=stream, dtype=torch.float64) * 0.6
        books = kept_by(books, decide(books, p, 0.7, "undo"))
        decision = decide(few, p[there], 0.7, "undo", all_active=True)
        assert decision.goes_on is not None
        stay = decision.goes_on.nonzero().squeeze(1)
        there, few = there[stay], few.select(stay)
        decision = decision.of_active(stay, few.active)
        few = kept_by(few, decision, all_keep=True, capped=bool((caps == number).any()))
        for name in ("survival", "ponder", "active"):
            assert torch.equal(getattr(few, name), getattr(books, name)[there]), (number, name)
        assert books.kept[there].tolist() == [few.kept] * len(there)
        stay = few.active.nonzero().squeeze(1)
        there, few = there[stay], few.select(stay)
    assert not len(there)


def by_autograd(
    halting: HaltingState, decision: Decision, states: States, *, all_keep: bool
) -> tuple[Tensor, ...]:
    """What `keep` returns with gradients, by the equations as they are printed."""

    def at_tokens(value: Tensor) -> Tensor:
        return (value if states.packing is None else value[states.packing.row])[:, None]

    weight = halting.survival * decision.p
    found = (
        halting.survival * (1 - decision.p),
        halting.spent + weight * (halting.kept + halting.delay),
        states.mixed + at_tokens(weight) * states.before,
        states.after,
    )
    if all_keep:
        return found
    before = (halting.survival, halting.spent, states.mixed, states.before)
    kept, column = decision.keeps, at_tokens(decision.keeps)
    return tuple(
        torch.where(kept if new.dim() == 1 else column, new, old)
        for new, old in zip(found, before, strict=True)
    )


@pytest.mark.parametrize("rule", ["undo", "prefix"])
@pytest.mark.parametrize("all_keep", [False, True])
@pytest.mark.parametrize("per_token", [False, True])
def test_gradients_of_a_step_are_those_of_its_equations(rule: Rule, all_keep: bool, per_token: bool) -> None:
    stream, lengths = torch.Generator().manual_seed(3), np.array([2, 4, 1])
    packing = None if per_token else Packing.of_counts(lengths, torch.device("cpu"))
    units = 7 if per_token else 3

    def number(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=stream, dtype=torch.float64).requires_grad_()

    given = (number(units), number(units), number(units), *(number(7, 2) for _ in range(3)))
    caps = torch.arange(2, 2 + units)
    kept = torch.arange(units) % 3
    begun = HaltingState.begin(caps, torch.float64)
    active = torch.arange(units) % 5 != 4

    def around(
        survival: Tensor, spent: Tensor, p: Tensor, *states: Tensor
    ) -> tuple[HaltingState, Decision, States]:
        number = 2 if all_keep else kept
        halting = replace(begun, survival=survival, spent=spent, active=active, kept=number)
        return halting, decide(halting, p, 0.7, rule), States(*states, packing)

    def by_hand(*given: Tensor) -> tuple[Tensor, ...]:
        books, mixed, after = keep(*around(*given), all_keep=all_keep)
        return books.survival, books.spent, mixed, after

    found, expected = by_hand(*given), by_autograd(*around(*given), all_keep=all_keep)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    weights = [torch.rand(each.shape, generator=stream, dtype=torch.float64) for each in found]
    ours, theirs = (torch.autograd.grad(each, given, weights) for each in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(by_hand, given)
