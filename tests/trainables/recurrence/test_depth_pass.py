"""A host that runs ahead of its device looks at decisions a layer later, and finds what it finds at once."""

from typing import Any

import pytest
import torch

from tests.trainables.training.steps import SHAPES, check_same, learner, small, stepped
from trainables.data.synthetic import synthetic_batch
from trainables.layers.block import Block
from trainables.layers.host import AnyLater
from trainables.recurrence import depth_pass
from trainables.recurrence.watching import watching
from trainables.training.step import StepResult

TOKEN = {"unit": "token"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gut": ("universal", {}),
    "ut": ("universal", {"gate": False, "halt": TOKEN | {"transition": False}}),
    "after the next layer": ("universal", {"halt": TOKEN}),
    "rows before the next layer": ("universal", {"halt": {"transition": False}}),
    "prefix": ("universal", {"halt": {"rule": "prefix"}}),
    "sut": ("sut", {}),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Filled by one each time that a shared block is run."""
    found: list[None] = []
    forward = Block.forward

    def counted(self: Block, *given: Any, **named: Any) -> Any:
        found.append(None)
        return forward(self, *given, **named)

    monkeypatch.setattr(Block, "forward", counted)
    return found


def taken(raw: dict[str, Any], bias: float) -> tuple[StepResult, dict[str, torch.Tensor]]:
    shape = SHAPES["classify"]
    one = learner(raw, shape)
    outer = one.model.encoder.halt.outer
    if outer.bias is not None:  # of SUT there is none
        with torch.no_grad():
            outer.bias.fill_(bias)
    return stepped(one, synthetic_batch(shape, 5, 7, seed=1))


@pytest.mark.parametrize("bias", [-30.0, 0.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_found_later_is_the_same(kind: str, bias: float, monkeypatch: pytest.MonkeyPatch) -> None:
    name, fields = KINDS[kind]
    raw = small(name, SHAPES["classify"]) | {"early_exit": "batch", "max_layers": 6} | fields
    at_once = taken(raw, bias)
    monkeypatch.setattr(depth_pass, "runs_ahead", lambda _: True)
    check_same(taken(raw, bias), at_once)


def test_one_layer_more_is_run(calls: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    raw = small("universal", SHAPES["classify"]) | {"early_exit": "batch", "max_layers": 9}
    taken(raw, 2.0)
    at_once = len(calls)
    assert at_once < 9, "all have halted before"
    monkeypatch.setattr(depth_pass, "runs_ahead", lambda _: True)
    taken(raw, 2.0)
    assert len(calls) - at_once == at_once + 1


def test_who_watches_sees_no_layer_that_nobody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = small("universal", SHAPES["classify"]) | {"early_exit": "batch", "max_layers": 9}
    seen = []
    for _ in range(2):
        with watching() as watch:
            taken(raw, 2.0)
        seen.append([len(each.layers) for each in watch.passes])
        monkeypatch.setattr(depth_pass, "runs_ahead", lambda _: True)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("flags", [[False, False], [False, True], []])
def test_any(flags: list[bool]) -> None:
    assert AnyLater(torch.tensor(flags, dtype=torch.bool)).look() == any(flags)
