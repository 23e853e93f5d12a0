"""The law of lengths and the trees of given lengths, against exact probabilities."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from trainables.generators.listops_lengths import LengthLaw
from trainables.generators.listops_splits import WORDS
from trainables.generators.listops_trees import Law, Trees, grow
from trainables.streams import numpy_stream


def outlines(law: Law) -> dict[str, Fraction]:
    """Every tree with `d` for each digit and `(` for each operator, and its probability under the process."""
    found = {"d": Fraction(1)}
    for _ in range(law.depth_max - 1):
        deeper = {"d": Fraction(3, 4)}
        for arity in range(2, law.arguments_max + 1):
            for arguments in product(found.items(), repeat=arity):
                text = "(" + "".join(argument for argument, _ in arguments) + ")"
                chance = Fraction(1, 4) / (law.arguments_max - 1)
                for _, part in arguments:
                    chance *= part
                deeper[text] = chance
        found = deeper
    return found


def outline(row: bytes) -> str:
    return "".join("d" if symbol < 10 else ")" if symbol == WORDS.index("]") else "(" for symbol in row)


@pytest.mark.parametrize("law", [Law(2, 5), Law(3, 3), Law(4, 2), Law(3, 4)])
def test_law_of_lengths_is_exact(law: Law) -> None:
    exact = np.zeros(law.longest() + 1)
    for text, chance in outlines(law).items():
        exact[len(text)] += float(chance)
    np.testing.assert_allclose(LengthLaw(law, law.longest()).tree, exact, rtol=1e-12)


def draw(law: Law, n: int, shortest: int, longest: int) -> Trees:
    return LengthLaw(law, longest).draw(numpy_stream(2, "test"), n, shortest, longest)


@pytest.mark.parametrize(
    ("law", "shortest", "longest"),
    [(Law(3, 3), 4, 9), (Law(3, 3), 1, 17), (Law(4, 2), 10, 14), (Law(3, 4), 1, 6)],
)
def test_trees_come_up_as_if_the_others_had_been_rejected(law: Law, shortest: int, longest: int) -> None:
    """Chi-square over all outlines; odds of failing by chance 10^-6."""
    n = 50_000
    chances = {text: chance for text, chance in outlines(law).items() if shortest <= len(text) <= longest}
    total = sum(chances.values())
    counts = Counter(map(outline, draw(law, n, shortest, longest).rows()))
    assert set(counts) <= set(chances)
    # Outlines expected less than five times are counted together, as the test wants.
    rare = [text for text in chances if n * chances[text] / total < 5]
    common = [text for text in chances if text not in set(rare)]
    expected = [float(n * chances[text] / total) for text in common]
    observed = [counts[text] for text in common]
    if rare:
        expected.append(float(n * sum(chances[text] for text in rare) / total))
        observed.append(sum(counts[text] for text in rare))
    assert chisquare(observed, np.asarray(expected) * (n / sum(expected))).pvalue > 1e-6


def test_given_lengths_agree_with_growing_and_rejecting() -> None:
    """Lengths, depths and labels of published trees of 30 to 60 tokens; odds of failing 10^-6 each."""
    law = Law(20, 5)
    grown = grow(numpy_stream(4, "test"), law, 150_000)
    grown = grown.take(np.flatnonzero((grown.lengths >= 30) & (grown.lengths <= 60)))
    drawn = draw(law, len(grown), 30, 60)
    for measure in (lengths_of, depths_of, labels_of):
        one, other = Counter(measure(grown)), Counter(measure(drawn))
        values = [value for value in one | other if one[value] + other[value] >= 10]
        table = [[one[value] for value in values], [other[value] for value in values]]
        assert chi2_contingency(table).pvalue > 1e-6, measure


def lengths_of(trees: Trees) -> list[int]:
    return [int(length) // 3 for length in trees.lengths]


def labels_of(trees: Trees) -> list[int]:
    return [int(label) for label in trees.labels]


def depths_of(trees: Trees) -> list[int]:
    depths = []
    for text in map(outline, trees.rows()):
        steps = np.asarray([{"(": 1, ")": -1, "d": 0}[letter] for letter in text])
        depths.append(int(np.cumsum(steps).max()))
    return depths
