"""ListOps by dependency depth: the law, its equal shares, and what wrapping does."""

from collections import Counter

import numpy as np
import pytest

from tests.oracles.solvers.listops_dependency_solver import count_tokens, depths, solve
from trainables.data.split import content_hash
from trainables.generators.listops_dependency_trees import (
    ARGUMENTS_MAX,
    DepthLaw,
    MeasuredTrees,
    P,
    draw,
    wrap,
)
from trainables.generators.listops_trees import Law
from trainables.streams import numpy_stream
from trainables.tasks import listops_dependency as task


def texts(drawn: MeasuredTrees) -> list[str]:
    return [task.decode(row) for row in drawn.trees.rows()]


@pytest.mark.parametrize("law", [*task.LAWS.values(), DepthLaw(4, 5)], ids=str)
def test_what_is_drawn_is_as_deep_as_measured(law: DepthLaw) -> None:
    drawn = draw(numpy_stream(0, "test"), law, 3000)
    found = texts(drawn)
    assert [depths(text) for text in found] == list(
        zip(drawn.depth.tolist(), drawn.dependency.tolist(), strict=True)
    )
    assert [count_tokens(text) for text in found] == drawn.counted().tolist()
    assert [solve(text) for text in found] == drawn.trees.labels.tolist()
    assert law.shallowest <= drawn.depth.min() <= drawn.depth.max() <= law.deepest
    assert drawn.counted().max() <= 50


def test_depths_are_shared_equally() -> None:
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
    """One draw, as the released generator makes it, word by word."""

    def number(bound: int) -> int:
        return int(stream.integers(bound))

    def operator(arguments: list[str]) -> str:
        return f"{('[MIN', '[MAX', '[MED', '[SM')[number(4)]} {' '.join(arguments)} ]"

    def subtree(levels: int) -> str:
        if levels == 1 or stream.random() > P:
            return str(number(10))
        return operator([subtree(levels - 1) for _ in range(2 + number(ARGUMENTS_MAX - 1))])

    text = subtree(deepest)
    while depths(text)[0] < shallowest:
        arguments = [subtree(deepest - 1) for _ in range(2 + number(ARGUMENTS_MAX - 2))]
        arguments.insert(number(len(arguments)), text)
        text = operator(arguments)
    return text


def test_the_law_is_that_of_drawing_one_by_one_and_rejecting() -> None:
    """Dependency depths and lengths of some thousands each: 5 standard errors, odds below 10^-4."""
    stream = np.random.default_rng(0)
    slow = [text for text in (published_draw(stream, 3, 5) for _ in range(6000)) if count_tokens(text) <= 50]
    fast = texts(draw(numpy_stream(1, "test"), DepthLaw(3, 5), 60_000))
    assert len(slow) / 6000 == pytest.approx(len(fast) / 60_000, abs=5 * np.sqrt(0.25 / 6000))
    for measure in (
        lambda text: depths(text)[1],
        lambda text: count_tokens(text) // 5,
        lambda text: text[:4],
    ):
        expected, found = Counter(map(measure, fast)), Counter(map(measure, slow))
        for key, times in expected.items():
            share = times / len(fast)
            error = np.sqrt(share * (1 - share) / len(slow))
            assert found[key] / len(slow) == pytest.approx(share, abs=5 * error + 1e-3), key


def test_a_wrapped_tree_is_an_argument_but_not_the_last() -> None:
    stream = numpy_stream(0, "test")
    inner = draw(stream, DepthLaw(2, 3), 500)
    outer = texts(wrap(stream, inner, Law(3, ARGUMENTS_MAX, P)))
    given = Counter(texts(inner))
    assert len(outer) > 300
    for text in outer:
        arguments = arguments_of(text)
        assert 3 <= len(arguments) <= ARGUMENTS_MAX
        assert any(argument in given for argument in arguments[:-1])


def arguments_of(text: str) -> list[str]:
    """What the outermost operator is applied to."""
    found: list[list[str]] = []
    depth = 0
    for word in text.split()[1:-1]:
        if depth == 0:
            found.append([])
        found[-1].append(word)
        depth += word.startswith("[") - (word == "]")
    return [" ".join(words) for words in found]


def test_no_training_tree_is_in_the_control() -> None:
    """The other tests are of depths that training has not."""
    config = task.Config(train_examples=3000, test_examples=60)
    train, control = (
        {tuple(row) for row in task.build(config, name)["tokens"].to_pylist()} for name in ("train", "iid")
    )
    assert (len(train), len(control)) == (3000, 60)
    assert not train & control
    free = task.draw_balanced(task.LAWS["train"], 3000, config.data_seed, "train", set())
    assert {tuple(row) for row in free.rows()} & control, "if not kept out, some would have come up"


def test_default_sizes_are_those_published() -> None:
    infos = task.splits(task.Config())
    assert [(info.name, info.role, info.examples) for info in infos] == [
        ("train", "train", 1_000_000),
        ("valid", "valid", 1_000),
        ("iid", "test", 1_000),
        ("deeper", "test", 1_000),
    ]


def test_content_is_pinned() -> None:
    """If this fails, the generator changed: raise VERSION, so that no old copy is taken for the new data."""
    config = task.Config(train_examples=200, test_examples=10)
    found = [content_hash(task.build(config, name)) for name in ("train", "deeper")]
    assert (task.VERSION, found) == (
        1,
        ["6253d9fcf5f999d2b1e23ad8b0f3ea7e", "08c3c4ebfcea897d9cd0fab60a793fc4"],
    )
