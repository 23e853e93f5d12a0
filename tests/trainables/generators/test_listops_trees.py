"""Growing, evaluating and rendering trees equals recursion over nested tuples."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.oracles.solvers.listops_solver import solve
from trainables.data.draws import uniform
from trainables.generators.listops_splits import WORDS
from trainables.generators.listops_trees import OPERATORS, Law, Level, Trees, grow, render
from trainables.streams import numpy_stream
from trainables.tasks import listops

Tree = int | tuple["Tree", ...]

trees = st.recursive(
    st.integers(0, 9),
    lambda inner: st.tuples(st.sampled_from(OPERATORS), st.lists(inner, min_size=2, max_size=15)).map(
        lambda node: (node[0], *node[1])
    ),
    max_leaves=40,
)


def render_recursively(tree: Tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    return f"{WORDS[tree[0]]} {' '.join(map(render_recursively, tree[1:]))} ]"


def forest(roots: list[Tree]) -> list[Level]:
    levels = []
    while roots:
        symbols = [node if isinstance(node, int) else node[0] for node in roots]
        arity = [0 if isinstance(node, int) else len(node) - 1 for node in roots]
        levels.append(Level(np.asarray(symbols, dtype=np.uint8), np.asarray(arity, dtype=np.int64)))
        roots = [child for node in roots if not isinstance(node, int) for child in node[1:]]
    return levels


def texts(forest: Trees) -> list[str]:
    return [listops.decode(row) for row in forest.rows()]


@given(st.lists(trees, min_size=1, max_size=8))
def test_rendered_trees_equal_recursion(roots: list[Tree]) -> None:
    rendered = render(forest(roots))
    assert texts(rendered) == [render_recursively(root) for root in roots]
    assert rendered.labels.tolist() == [solve(render_recursively(root)) for root in roots]


def every_tree(law: Law) -> list[Tree]:
    trees_: list[Tree] = list(range(10))
    for _ in range(law.depth_max - 1):
        arguments = [c for k in range(2, law.arguments_max + 1) for c in product(trees_, repeat=k)]
        trees_ = [
            *range(10),
            *((operator, *arguments_) for operator in OPERATORS for arguments_ in arguments),
        ]
    return trees_


@pytest.mark.parametrize("law", [Law(1, 5), Law(2, 2), Law(2, 3)])
def test_number_of_trees_equals_the_list_of_all_trees(law: Law) -> None:
    listed = [render_recursively(tree).count(" ") + 1 for tree in every_tree(law)]
    assert law.distinct() == len(listed)
    assert law.longest() == max(listed)


def test_trees_of_a_tiny_law_have_the_expected_frequency() -> None:
    """A chi-square test over all 410 trees of two levels and two arguments fails by chance with 10^-6."""
    n = 200_000
    counts = Counter(texts(grow(numpy_stream(5, "test"), Law(2, 2), n)))
    expected = {
        text: n * (0.75 / 10 if len(text) == 1 else 0.25 / 400)
        for text in map(render_recursively, every_tree(Law(2, 2)))
    }
    assert set(counts) == set(expected)
    observed = [counts[text] for text in expected]
    assert chisquare(observed, list(expected.values())).pvalue > 1e-6


def test_uniform_numbers_equal_the_generators() -> None:
    """NumPy may change `Generator.random`; numbers drawn from raw output stay the same."""
    numbers = uniform(numpy_stream(1, "test"), 4)
    np.testing.assert_array_equal(numbers, numpy_stream(1, "test").random(4))
    pinned = [0.4639942571582403, 0.1915449291193101, 0.19553001872843212, 0.8780309556258783]
    assert numbers.tolist() == pinned
