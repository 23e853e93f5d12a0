"""Active units can be selected, and results of halted units are gathered in order."""

from dataclasses import dataclass, field, fields
from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.layers.packing import Packing
from trainables.layers.tokens import Placed, Tokens, packed_places
from trainables.models.looped import LoopingRows
from trainables.recurrence.active_units import PER_TOKEN, ActiveUnits, HaltedResults, full_batch_indices
from trainables.recurrence.composition import ComposingRows
from trainables.recurrence.depth_units import DepthUnits

PACKING = Packing.of_lengths(torch.tensor([4, 3, 5, 3]), 5)
WIDTH = 2


def states() -> Tensor:
    return torch.randn(15, WIDTH, generator=torch.Generator().manual_seed(0), requires_grad=True)


def depth(**options: Any) -> DepthUnits:
    tokens = Tokens.of(PACKING, WIDTH, torch.float32, causal=options.get("running", False))
    return DepthUnits.begin(
        states(), tokens, PACKING.counts + 1, **{"per_token": False, "running": False} | options
    )


KINDS = {
    "rows over depth": depth,
    "tokens over depth": lambda: depth(per_token=True),
    "tokens over depth, by means so far": lambda: depth(per_token=True, running=True),
    "rows over spans": lambda: ComposingRows.begin(states(), PACKING),
    "rows in loops": lambda: LoopingRows.begin(states(), PACKING, torch.tensor([2, 1, 3, 1])),
}


def tensors(units: ActiveUnits) -> dict[str, Tensor]:
    tensors_by_name = {each.name: getattr(units, each.name) for each in fields(units)}
    return {name: value for name, value in tensors_by_name.items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("kind", KINDS)
def test_selected_units_keep_all_of_their_entries(kind: str) -> None:
    units = KINDS[kind]()
    stay = torch.arange(len(units.origin)) % 2 == 1
    picked = units.pick(stay)
    some = units.select(picked)
    of_tokens = stay if units.per_token else stay[PACKING.row]
    assert some.origin.tolist() == stay.nonzero().flatten().tolist()
    assert some.source.tolist() == of_tokens.nonzero().flatten().tolist()
    assert some.packing.row.shape == some.tokens.place.shape == some.source.shape
    for name, value in tensors(units).items():
        if name == "halted_sum":
            continue
        chosen = stay if len(value) == len(stay) else of_tokens
        torch.testing.assert_close(tensors(some)[name], value[chosen], msg=name)


def test_states_of_halted_units_stay_in_the_sums_of_later_tokens() -> None:
    units = depth(per_token=True, running=True)
    stays = (PACKING.column != 1).numpy()
    some = units.with_halted(~stays).select(units.pick(stays))
    expected = torch.where((PACKING.column == 1)[:, None], units.states, 0)
    assert some.halted_sum is not None
    torch.testing.assert_close(some.halted_sum, PACKING.running_sum(expected)[PACKING.column != 1])
    torch.testing.assert_close(some.means_of(some.states), some.features)


@pytest.mark.parametrize("kind", KINDS)
def test_gathered_results_have_the_order_of_the_full_batch(kind: str) -> None:
    units, halted = KINDS[kind](), HaltedResults[ActiveUnits]()
    all_units, number = units, torch.arange(len(units.origin))
    for leaving in (number % 3 == 1, number % 3 == 0):
        units = halted.release(units, ~leaving[units.origin])
    halted.add(units)
    assert len(halted.removed_units) == 3
    (source, results), (origin,) = (
        halted.per_token(lambda part: torch.as_tensor(part.source), lambda part: part.states),
        halted.per_unit(lambda part: torch.as_tensor(part.origin)),
    )
    assert source.tolist() == list(range(15))
    assert origin.tolist() == number.tolist()
    torch.testing.assert_close(results, all_units.states)
    (gradient,) = torch.autograd.grad((results * source[:, None]).sum(), all_units.states)
    torch.testing.assert_close(gradient, source[:, None].expand(15, WIDTH).float())


@pytest.mark.parametrize("kind", KINDS)
def test_split_without_halted_units_is_a_no_op(kind: str) -> None:
    units, halted = KINDS[kind](), HaltedResults[ActiveUnits]()
    assert halted.release(units, torch.ones(len(units.origin), dtype=torch.bool)) is units
    assert halted.removed_units == []


def test_undeclared_tensor_raises_an_error() -> None:
    @dataclass(frozen=True, kw_only=True)
    class UndeclaredTensor(ActiveUnits):
        states: Tensor = field(metadata=PER_TOKEN)
        scores: Tensor

    source, rows = full_batch_indices(PACKING)
    tokens = Placed(PACKING, packed_places(PACKING))
    units = UndeclaredTensor(
        tokens=tokens, per_token=False, source=source, origin=rows, states=states(), scores=torch.zeros(15)
    )
    with pytest.raises(AssertionError, match="PER_TOKEN or PER_UNIT"):
        units.select(units.pick(torch.tensor([True, False, True, True])))
