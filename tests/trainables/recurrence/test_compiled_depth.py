"""Recurrence over depth that is compiled: as eager, and nothing new to compile when the first units halt."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.training.steps import SHAPES, check_same, learner, small, stepped
from trainables.data.synthetic import synthetic_batch
from trainables.layers.packing import Packing
from trainables.recurrence.compiled_units import HeldKeys
from trainables.regions.compiling import Compiler

TOKEN = {"unit": "token"}
KINDS: dict[str, dict[str, Any]] = {
    "ut, from the first layer on": {"gate": False, "halt": TOKEN | {"transition": False, "origin": 1}},
    "ut, keys of states": {"gate": False, "kv": "states", "halt": TOKEN | {"transition": False}},
    "tokens after the next layer": {"halt": TOKEN},
    "rows before the next layer": {"halt": {"transition": False}},
    "rows, keys of mixtures": {"kv": "mixture"},
}
"""GUT itself is in the contract of models; its units leave as those of rows with keys of mixtures do."""
BATCHES = ((7, 9, -30.0), (7, 9, 1.0), (5, 6, 0.0), (7, 9, 2.0))
"""Rows, columns, and the bias of halting: in the first batch none does."""


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_it_is_what_it_is(kind: str) -> None:
    shape = SHAPES["classify"]
    raw = small("universal", shape) | {"early_exit": "compact"} | KINDS[kind]
    plain, compiled = learner(raw, shape), learner(raw, shape)
    compiled.compiler = Compiler("eager")
    graphs = 0
    for number, (rows, columns, bias) in enumerate(BATCHES):
        for each in (plain, compiled):
            with torch.no_grad():
                each.model.encoder.halt.outer.bias.fill_(bias)
        batch = synthetic_batch(shape, rows, columns, seed=number)
        check_same(stepped(compiled, batch), stepped(plain, batch))
        assert not graphs or compiled.compiler.graphs == graphs, "nothing is compiled later"
        graphs = compiled.compiler.graphs
    assert graphs > 0


def test_keys_that_are_held_are_found_where_they_were_written() -> None:
    keys = HeldKeys.begin(Packing.of_counts(np.array([2, 3]), torch.device("cpu")))
    every, found = np.ones(5, dtype=bool), torch.arange(5)[:, None]
    after, (made, before, _, _) = keys.written(np.array([True, True, False, True, False]), every)
    assert made.tolist() == [0, 1, 2, 3, 4]
    assert before is None
    after = HeldKeys(found, after.held, after.packing, after.known)
    assert after.known.tolist() == [0, 1, 3]
    last, (made, before, made_to, before_to) = after.written(
        np.array([False, False, True]), np.array([True, True, True])
    )
    assert made.tolist() == [-1, 2, -1]
    assert before.tolist() == [2, -1, 4]
    assert made_to.tolist() == [-1, -1, 1], "keys of rows that are left by all tokens are no longer held"
    assert before_to.tolist() == [-1, -1, 0, -1, 2]
    assert last.known.tolist() == [1]
    assert last.packing.host_counts.tolist() == [3]
