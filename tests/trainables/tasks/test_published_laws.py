"""Laws of the published data across splits and tasks, each with its probability of failing by chance."""

import numpy as np
import pytest
from scipy.stats import chisquare

from trainables.generators.listops_splits import SplitLaw, generate
from trainables.generators.listops_trees import CLOSE, MIN, Trees
from trainables.streams import numpy_stream
from trainables.tasks import flipflop, listops

ODDS = 1e-6
TREES = 300


def arities(trees: Trees) -> np.ndarray:
    """Return the number of arguments of every operator, counted token by token."""
    counts: list[int] = []
    for row in trees.rows():
        open_operators: list[int] = []
        for symbol in row:
            if symbol == CLOSE:
                counts.append(open_operators.pop())
            if open_operators and symbol != CLOSE:
                open_operators[-1] += 1
            if MIN <= symbol < CLOSE:
                open_operators.append(0)
    return np.asarray(counts)


@pytest.mark.parametrize(
    ("split", "bounds", "arguments", "nested"),
    [
        ("length-200-300", (201, 299), 5, 19),
        ("arguments-15", (100, 1000), 15, 8),
        ("lra", (501, 1999), 10, 9),
    ],
)
def test_listops_tests_have_the_published_bounds(
    split: str, bounds: tuple[int, int], arguments: int, nested: int
) -> None:
    """Every number of arguments occurs: the rarest is a twentieth of thousands of operators."""
    law: SplitLaw = listops._test_laws(listops.Config())[split]
    trees = generate(SplitLaw(law.law, law.lengths, TREES), 0, ("published", split), set())
    assert law.lengths == bounds
    assert law.examples == 2_000
    assert bounds[0] <= trees.lengths.min() <= trees.lengths.max() <= bounds[1]
    assert trees.nesting().max() <= nested
    assert set(arities(trees).tolist()) == set(range(2, arguments + 1))


@pytest.mark.parametrize("ignore", [0.1, 0.8, 0.98])
def test_distance_of_the_last_write_follows_the_law(ignore: float) -> None:
    """Each inner instruction is `w` with probability (1 - p) / 2, so the distance is geometric.

    The first instruction, a `w`, bounds the distance. A chi-square test compares the expected distances.
    """
    strings, length = 3_000, 512
    part = flipflop._Part(length, ignore, strings)
    instructions = flipflop._draw(numpy_stream(4, "published"), part, strings)[:, 0::2]
    last = length // 2 - 1
    distances = last - (last - 1 - np.argmax(instructions[:, -2::-1] == flipflop.WRITE, axis=1))
    q = (1 - ignore) / 2
    chances = q * (1 - q) ** np.arange(last - 1)
    expected = strings * np.append(chances, 1 - chances.sum())
    counts = np.bincount(distances - 1, minlength=last)
    # Neighbouring distances are counted together until some sixty are expected.
    cuts = np.unique(np.searchsorted(np.cumsum(expected), np.arange(0, strings, 60)))
    assert chisquare(np.add.reduceat(counts, cuts), np.add.reduceat(expected, cuts)).pvalue > ODDS
