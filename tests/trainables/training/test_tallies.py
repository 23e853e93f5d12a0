"""Depth by length and by operators and use of experts are counts of what forward passes did."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.training.test_examples import PAIRS, SUT, TOKEN, TREES, learner, pair, tree
from trainables.task_catalog import task_config, token_classes
from trainables.training.examples import record_example
from trainables.training.tallies import BOUNDARY, WORD, tally_examples
from trainables.types import Batch

NESTED = [11, 1, 11, 2, 3, 14, 11, 4, 14, 14]
"""Three operators."""


def trees(*rows: list[int]) -> Batch:
    wide = max(map(len, rows))
    tokens = torch.tensor([[*row, *[16] * (wide - len(row))] for row in rows])
    mask = torch.tensor([[place < len(row) for place in range(wide)] for row in rows])
    return Batch(tokens, mask, torch.tensor([9] * len(rows)))


def digits(length: int) -> list[int]:
    return [(7 * each) % 10 for each in range(length)]


def kept(model: dict[str, Any], task: Any, *batches: Batch) -> dict[str, dict[str, Any]]:
    found = tally_examples(learner(model, task), {"near-iid": batches}, task)
    return {each["kind"]: each for each in found}


def test_depth_is_told_by_number_of_operators() -> None:
    rows = [[11, 1, 2, 14], [12, 3, 4, 14], NESTED]
    bins = kept(TOKEN, TREES, trees(*rows[:2]), trees(rows[2]))["operators"]["bins"]
    alone = [record_example(learner(TOKEN), trees(row), TREES) for row in rows]
    assert [each[:3] for each in bins] == [[1, 1, 2], [3, 3, 1]]
    depths = [each["depth"] for each in alone]
    assert bins[0][3] == pytest.approx(np.mean(depths[:2]), abs=1e-3)
    assert bins[0][4:6] == pytest.approx(np.percentile(depths[:2], (10, 90)).tolist(), abs=1e-3)
    assert bins[1][3:6] == pytest.approx([depths[2]] * 3, abs=1e-3)
    assert [each[6:8] for each in bins] == [
        [sum(each["hits"] for each in alone[:2]), 2],
        [alone[2]["hits"], 1],
    ]


def test_depth_is_told_by_length_inside_each_split() -> None:
    """Without classes of tokens too, in bins of about as many examples, whatever batches they come in."""
    task = task_config({"name": "digits"})
    trained = learner(TOKEN, task)
    lengths = [*range(4, 20), *range(4, 20), 40]
    near = [trees(*(digits(each) for each in lengths[:10])), trees(*(digits(each) for each in lengths[10:]))]
    found = [*tally_examples(trained, {"near": near, "far": [trees(digits(50))]}, task)]
    assert [(each["kind"], each["split"]) for each in found] == [("lengths", "near"), ("lengths", "far")]
    bins = found[0]["bins"]
    assert [each[:3] for each in bins] == [[4, 7, 8], [8, 11, 8], [12, 15, 8], [16, 40, 9]]
    with torch.inference_mode():
        trained.model.eval()
        alone = {each: trained.model(trees(digits(each))) for each in set(lengths)}
    for low, high, _, mean, tenth, ninetieth, hits, asked, bound in bins:
        inside = [each for each in lengths if low <= each <= high]
        depths = [float(alone[each].encoded.depth) for each in inside]
        assert [mean, tenth, ninetieth] == pytest.approx(
            [np.mean(depths), *np.percentile(depths, (10, 90))], abs=1e-3
        )
        assert [hits, asked] == [sum(int(alone[each].hits) for each in inside), len(inside)]
        assert bound == np.mean([float(alone[each].encoded.bound) for each in inside])
    assert found[1]["bins"][0][:3] == [50, 50, 1]


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
        parts = [
            record_example(learner(model), trees(row), TREES)["parts"][0] for row in (NESTED, [11, 1, 2, 14])
        ]
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
        assert np.sum([uses for _, uses in mixture["layers"]], axis=0).tolist() == [
            sum(row) for row in zip(*mixture["uses"], strict=True)
        ]
        assert [layer for layer, _ in mixture["layers"]] == [*range(1, len(mixture["layers"]) + 1)]
        if halt is None:
            assert {sum(uses) for _, uses in mixture["layers"]} == {active * 18}, "18 words, in every layer"


def test_words_of_an_expert_are_those_that_chose_it_most_often() -> None:
    """Without halting every word chooses `active` experts in each of six layers; there are four words."""
    found = kept({**SUT, "halt": None, "max_layers": 6}, TREES, trees([11, 1, 1, 14], [2, 1, 1, 14]))
    for mixture, active in zip(found["experts"]["mixtures"], (2, 1), strict=True):
        total: dict[str, int] = {}
        for words in mixture["words"]:
            times = [each for _, each in words]
            assert times == sorted(times, reverse=True)
            for word, each in words:
                total[word] = total.get(word, 0) + each
        assert total == {"[MAX": 6 * active, "1": 24 * active, "]": 12 * active, "2": 6 * active}
        of_words = [
            uses for kind, uses in zip(mixture["classes"], mixture["uses"], strict=True) if kind != BOUNDARY
        ]
        assert [sum(times for _, times in words) for words in mixture["words"]] == np.sum(
            of_words, axis=0
        ).tolist()


def test_words_of_experts_are_counted_without_classes_of_words_too() -> None:
    task = task_config({"name": "digits"})
    found = kept({**SUT, "halt": None, "max_layers": 2}, task, trees([5, 5, 7]))["experts"]["mixtures"][1]
    assert set(found["classes"]) == {WORD, BOUNDARY}
    total = Counter(dict[str, int]())
    for words in found["words"]:
        total.update(dict(words))
    assert sorted(total.values()) == [2, 4]


def test_both_sentences_of_a_pair_are_counted() -> None:
    found = kept({**SUT, "halt": None, "max_layers": 1}, PAIRS, pair())["experts"]["mixtures"][1]
    sums = dict(zip(found["classes"], map(sum, found["uses"]), strict=True))
    assert sums == {"bracket": 2, "variable": 3, BOUNDARY: 4}


def test_without_classes_nothing_and_without_experts_no_experts() -> None:
    assert [*kept(TOKEN, task_config({"name": "digits"}), tree(5))] == ["lengths"]
    assert [*kept(TOKEN, TREES, tree(5))] == ["lengths", "operators"]
