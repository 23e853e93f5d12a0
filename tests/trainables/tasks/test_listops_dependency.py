"""ListOps by dependency depth: its law and equal shares of depths."""

from collections import Counter

import numpy as np
import pytest

from tests.oracles.solvers.listops_dependency_solver import count_tokens, depths, solve
from trainables.generators.listops_dependency_trees import (
    ARGUMENTS_MAX,
    OPERATOR_PROBABILITY,
    DepthLaw,
    MeasuredTrees,
    draw,
)
from trainables.streams import numpy_stream
from trainables.tasks import listops_dependency as task


def texts(trees: MeasuredTrees) -> list[str]:
    return [task.decode(row) for row in trees.trees.rows()]


@pytest.mark.parametrize("law", [*task.LAWS.values(), DepthLaw(4, 5)], ids=str)
def test_drawn_trees_have_the_measured_depths(law: DepthLaw) -> None:
    trees = draw(numpy_stream(0, "test"), law, 3000)
    tree_texts = texts(trees)
    assert [depths(text) for text in tree_texts] == list(
        zip(trees.depth.tolist(), trees.dependency.tolist(), strict=True)
    )
    assert [count_tokens(text) for text in tree_texts] == trees.counted_tokens().tolist()
    assert [solve(text) for text in tree_texts] == trees.trees.labels.tolist()
    assert law.shallowest <= trees.depth.min() <= trees.depth.max() <= law.deepest
    assert trees.counted_tokens().max() <= 50


def test_depths_have_equal_shares() -> None:
    config = task.Config(train_examples=1003, test_examples=10)
    for name, shares in {
        "train": {2: 201, 3: 201, 4: 201, 5: 200, 6: 200},
        "iid": dict.fromkeys(range(2, 7), 2),
        "valid": {7: 10},
        "deeper": {8: 5, 9: 5},
    }.items():
        table = task.build(config, name)
        assert Counter(depths(task.decode(row))[1] for row in table["tokens"].to_pylist()) == shares


def published_draw(stream: np.random.Generator, shallowest: int, deepest: int) -> str:
    """Draw one tree as the released generator does, word by word."""

    def number(bound: int) -> int:
        return int(stream.integers(bound))

    def operator(arguments: list[str]) -> str:
        return f"{('[MIN', '[MAX', '[MED', '[SM')[number(4)]} {' '.join(arguments)} ]"

    def subtree(levels: int) -> str:
        if levels == 1 or stream.random() > OPERATOR_PROBABILITY:
            return str(number(10))
        return operator([subtree(levels - 1) for _ in range(2 + number(ARGUMENTS_MAX - 1))])

    text = subtree(deepest)
    while depths(text)[0] < shallowest:
        arguments = [subtree(deepest - 1) for _ in range(2 + number(ARGUMENTS_MAX - 2))]
        arguments.insert(number(len(arguments)), text)
        text = operator(arguments)
    return text


def test_law_equals_drawing_and_rejecting_trees() -> None:
    """Depths and lengths of thousands of trees are within 5 standard errors; chance is below 10^-4."""
    stream = np.random.default_rng(0)
    published_texts = [
        text for text in (published_draw(stream, 3, 5) for _ in range(6000)) if count_tokens(text) <= 50
    ]
    generated_texts = texts(draw(numpy_stream(1, "test"), DepthLaw(3, 5), 60_000))
    assert len(published_texts) / 6000 == pytest.approx(
        len(generated_texts) / 60_000, abs=5 * np.sqrt(0.25 / 6000)
    )
    for measure in (
        lambda text: depths(text)[1],
        lambda text: count_tokens(text) // 5,
        lambda text: text[:4],
    ):
        expected, published_counts = (
            Counter(map(measure, generated_texts)),
            Counter(map(measure, published_texts)),
        )
        for key, count in expected.items():
            share = count / len(generated_texts)
            error = np.sqrt(share * (1 - share) / len(published_texts))
            assert published_counts[key] / len(published_texts) == pytest.approx(
                share, abs=5 * error + 1e-3
            ), key


def test_no_training_tree_is_in_the_iid_split() -> None:
    """The other test splits have depths that are absent from training."""
    config = task.Config(train_examples=3000, test_examples=60)
    train, control = (
        {tuple(row) for row in task.build(config, name)["tokens"].to_pylist()} for name in ("train", "iid")
    )
    assert (len(train), len(control)) == (3000, 60)
    assert not train & control
    free = task.draw_balanced(task.LAWS["train"], 3000, config.data_seed, "train", set())
    assert {tuple(row) for row in free.rows()} & control, (
        "without the exclusion, some training trees must repeat"
    )
