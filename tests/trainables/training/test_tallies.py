"""Depth by length and by operators, and use of experts, equal counts of forward passes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.training.test_examples import SUT, TOKEN, TREES, learner, tree
from trainables.task_catalog import task_config
from trainables.training.examples import record_example
from trainables.training.tallies import BOUNDARY, tally_examples
from trainables.types import Batch

NESTED = [11, 1, 11, 2, 3, 14, 11, 4, 14, 14]
"""Tokens of a tree with three operators."""


def trees(*rows: list[int]) -> Batch:
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[16] * (width - len(row))] for row in rows])
    mask = torch.tensor([[position < len(row) for position in range(width)] for row in rows])
    return Batch(tokens, mask, torch.tensor([9] * len(rows)))


def digits(length: int) -> list[int]:
    return [(7 * number) % 10 for number in range(length)]


def tallies_by_kind(model: dict[str, Any], task: Any, *batches: Batch) -> dict[str, dict[str, Any]]:
    tallies = tally_examples(learner(model, task), {"near-iid": batches}, task)
    return {tally["kind"]: tally for tally in tallies}


def test_depth_is_tallied_by_number_of_operators() -> None:
    rows = [[11, 1, 2, 14], [12, 3, 4, 14], NESTED]
    bins = tallies_by_kind(TOKEN, TREES, trees(*rows[:2]), trees(rows[2]))["operators"]["bins"]
    examples = [record_example(learner(TOKEN), trees(row), TREES) for row in rows]
    assert [bin_[:3] for bin_ in bins] == [[1, 1, 2], [3, 3, 1]]
    depths = [example["depth"] for example in examples]
    assert bins[0][3] == pytest.approx(np.mean(depths[:2]), abs=1e-3)
    assert bins[0][4:6] == pytest.approx(np.percentile(depths[:2], (10, 90)).tolist(), abs=1e-3)
    assert bins[1][3:6] == pytest.approx([depths[2]] * 3, abs=1e-3)
    assert [bin_[6:8] for bin_ in bins] == [
        [sum(example["hits"] for example in examples[:2]), 2],
        [examples[2]["hits"], 1],
    ]


def test_depth_is_tallied_by_length_in_each_split() -> None:
    """Bins have about equal numbers of examples, independent of batches, also without classes of tokens."""
    task = task_config({"name": "digits"})
    learner_ = learner(TOKEN, task)
    lengths = [*range(4, 20), *range(4, 20), 40]
    near_batches = [
        trees(*(digits(length) for length in lengths[:10])),
        trees(*(digits(length) for length in lengths[10:])),
    ]
    tallies = [*tally_examples(learner_, {"near": near_batches, "far": [trees(digits(50))]}, task)]
    assert [(tally["kind"], tally["split"]) for tally in tallies] == [("lengths", "near"), ("lengths", "far")]
    bins = tallies[0]["bins"]
    assert [bin_[:3] for bin_ in bins] == [[4, 7, 8], [8, 11, 8], [12, 15, 8], [16, 40, 9]]
    with torch.inference_mode():
        learner_.model.eval()
        outputs = {length: learner_.model(trees(digits(length))) for length in set(lengths)}
    for low, high, _, mean, tenth, ninetieth, hits, num_predictions, bound in bins:
        bin_lengths = [length for length in lengths if low <= length <= high]
        depths = [float(outputs[bin_length].encoded.depth) for bin_length in bin_lengths]
        assert [mean, tenth, ninetieth] == pytest.approx(
            [np.mean(depths), *np.percentile(depths, (10, 90))], abs=1e-3
        )
        assert [hits, num_predictions] == [
            sum(int(outputs[bin_length].hits) for bin_length in bin_lengths),
            len(bin_lengths),
        ]
        assert bound == np.mean([float(outputs[bin_length].encoded.bound) for bin_length in bin_lengths])
    assert tallies[1]["bins"][0][:3] == [50, 50, 1]


def test_tallies_without_classes_or_experts_are_absent() -> None:
    assert [*tallies_by_kind(TOKEN, task_config({"name": "digits"}), tree(5))] == ["lengths"]
    assert [*tallies_by_kind(TOKEN, TREES, tree(5))] == ["lengths", "operators"]


def test_experts_are_tallied_by_class_of_token() -> None:
    """Every layer of a word that has not halted chooses `active` experts in each mixture."""
    rows = NESTED, [11, 1, 2, 14]
    model = {**SUT, "max_layers": 6, "early_exit": "none"}
    tally = tallies_by_kind(model, TREES, trees(*rows))["experts"]
    assert tally["examples"] == 2
    parts = [record_example(learner(model), trees(row), TREES)["parts"][0] for row in rows]
    assert any(percent < 0 for part in parts for running in part["running"] for percent in running)
    kinds = {"[MAX": "operator", "]": "bracket", "START": BOUNDARY, "END": BOUNDARY}
    layers = Counter[str]()
    for part in parts:
        for word, running in zip(part["words"], part["running"], strict=True):
            layers[kinds.get(word, "digit")] += sum(percent >= 0 for percent in running)
    for mixture, active, experts in zip(tally["mixtures"], (2, 1), (4, 3), strict=True):
        sums = dict(zip(mixture["classes"], map(sum, mixture["uses"]), strict=True))
        assert sums == {kind: active * count for kind, count in layers.items()}
        assert {len(row) for row in mixture["uses"]} == {experts}
        uses_of_layers = np.sum([uses for _, uses in mixture["layers"]], axis=0)
        assert uses_of_layers.tolist() == [sum(row) for row in zip(*mixture["uses"], strict=True)]
