"""Depth by operators and experts by class of word are counts of what forward passes did."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.training.test_examples import PAIRS, SUT, TOKEN, TREES, learner, pair, tree
from trainables.task_catalog import task_config, token_classes
from trainables.training.examples import seen_of
from trainables.training.tallies import BOUNDARY, tallied
from trainables.types import Batch

NESTED = [11, 1, 11, 2, 3, 14, 11, 4, 14, 14]
"""Three operators."""


def trees(*rows: list[int]) -> Batch:
    wide = max(map(len, rows))
    tokens = torch.tensor([[*row, *[16] * (wide - len(row))] for row in rows])
    mask = torch.tensor([[place < len(row) for place in range(wide)] for row in rows])
    return Batch(tokens, mask, torch.tensor([9] * len(rows)))


def kept(model: dict[str, Any], task: Any, *batches: Batch) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in tallied(learner(model, task), batches, task)}


def test_depth_is_told_by_number_of_operators() -> None:
    rows = [[11, 1, 2, 14], [12, 3, 4, 14], NESTED]
    bins = kept(TOKEN, TREES, trees(*rows[:2]), trees(rows[2]))["operators"]["bins"]
    alone = [seen_of(learner(TOKEN), trees(row), TREES) for row in rows]
    assert [each[:3] for each in bins] == [[1, 1, 2], [3, 3, 1]]
    depths = [each["depth"] for each in alone]
    assert bins[0][3] == pytest.approx(np.mean(depths[:2]), abs=1e-3)
    assert bins[0][4:6] == pytest.approx(np.percentile(depths[:2], (10, 90)).tolist(), abs=1e-3)
    assert bins[1][3:6] == pytest.approx([depths[2]] * 3, abs=1e-3)
    assert [each[6:] for each in bins] == [
        [sum(each["hits"] for each in alone[:2]), 2],
        [alone[2]["hits"], 1],
    ]


def test_many_operators_share_bins() -> None:
    row = [*[11] * 20, 1, *[14] * 20]
    (only,) = kept(TOKEN, TREES, trees(row))["operators"]["bins"]
    assert only[:3] == [17, 20, 1]


def test_of_a_pair_the_sentence_with_more_operators_counts() -> None:
    words = token_classes(PAIRS)
    one, separator = words.index("operator"), 11
    tokens = torch.tensor([[2, separator, one, one, 3]])
    made = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor([2]))
    assert kept(SUT, PAIRS, made)["operators"]["bins"][0][:3] == [2, 2, 1]


@pytest.mark.parametrize(
    ("halt", "early_exit"), [({"threshold": 0.9}, "none"), ({"threshold": 0.9}, "compact"), (None, "none")]
)
def test_experts_are_counted_by_class(halt: Any, early_exit: str) -> None:
    """Every layer that a token keeps chooses `active` experts in each mixture."""
    model = {**SUT, "halt": halt, "max_layers": 6, "early_exit": early_exit}
    found = kept(model, TREES, trees(NESTED, [11, 1, 2, 14]))["experts"]
    assert found["examples"] == 2
    if halt is None:
        layers = {"operator": 4 * 6, "digit": 6 * 6, "bracket": 4 * 6, BOUNDARY: 4 * 6}
    else:
        parts = [seen_of(learner(model), trees(row), TREES)["parts"][0] for row in (NESTED, [11, 1, 2, 14])]
        kinds = {"[MAX": "operator", "]": "bracket", "START": BOUNDARY, "END": BOUNDARY}
        layers = {}
        halted = [each < 0 for part in parts for running in part["running"] for each in running]
        assert any(halted) == (early_exit == "none"), "layers must be run on halted words, to try that"
        for part in parts:
            for word, running in zip(part["words"], part["running"], strict=True):
                kind = kinds.get(word, "digit")
                layers[kind] = layers.get(kind, 0) + sum(each >= 0 for each in running)
    for mixture, active, experts in zip(found["mixtures"], (2, 1), (4, 3), strict=True):
        sums = dict(zip(mixture["classes"], map(sum, mixture["uses"]), strict=True))
        assert sums == {kind: active * count for kind, count in layers.items()}
        assert {len(row) for row in mixture["uses"]} == {experts}


def test_both_sentences_of_a_pair_are_counted() -> None:
    found = kept({**SUT, "halt": None, "max_layers": 1}, PAIRS, pair())["experts"]["mixtures"][1]
    sums = dict(zip(found["classes"], map(sum, found["uses"]), strict=True))
    assert sums == {"bracket": 2, "variable": 3, BOUNDARY: 4}


def test_without_classes_nothing_and_without_experts_no_experts() -> None:
    assert [*tallied(learner(TOKEN), [tree(5)], task_config({"name": "digits"}))] == []
    assert [*kept(TOKEN, TREES, tree(5))] == ["operators"]


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        ("listops", {"digit", "operator", "bracket", "other"}),
        ("listops_lra", {"digit", "operator", "bracket", "other"}),
        ("logical_inference", {"variable", "operator", "bracket", "other"}),
        ("flipflop", {"write", "ignore", "read", "bit", "other"}),
    ],
)
def test_every_token_has_a_class(task: str, classes: set[str]) -> None:
    from trainables.task_catalog import shape

    config = task_config({"name": task})
    assert len(token_classes(config)) == shape(config).vocabulary_size
    assert set(token_classes(config)) == classes
