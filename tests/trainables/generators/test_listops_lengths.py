"""The law of lengths, and trees of given lengths, have exact probabilities."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from trainables.generators.listops_lengths import LengthLaw
from trainables.generators.listops_splits import WORDS
from trainables.generators.listops_trees import Law, Trees
from trainables.streams import numpy_stream


def outlines(law: Law) -> dict[str, Fraction]:
    """Return the probability of every tree, written with `d` for a digit and `(` for an operator."""
    probabilities = {"d": Fraction(1)}
    for _ in range(law.depth_max - 1):
        deeper = {"d": Fraction(3, 4)}
        for arity in range(2, law.arguments_max + 1):
            for arguments in product(probabilities.items(), repeat=arity):
                text = "(" + "".join(argument for argument, _ in arguments) + ")"
                chance = Fraction(1, 4) / (law.arguments_max - 1)
                for _, part in arguments:
                    chance *= part
                deeper[text] = chance
        probabilities = deeper
    return probabilities


def outline(row: bytes) -> str:
    return "".join("d" if symbol < 10 else ")" if symbol == WORDS.index("]") else "(" for symbol in row)


@pytest.mark.parametrize("law", [Law(3, 3), Law(4, 2)])
def test_law_of_lengths_equals_exact_probabilities(law: Law) -> None:
    exact = np.zeros(law.longest() + 1)
    for text, chance in outlines(law).items():
        exact[len(text)] += float(chance)
    np.testing.assert_allclose(LengthLaw(law, law.longest()).tree, exact, rtol=1e-12)


def draw(law: Law, n: int, shortest: int, longest: int) -> Trees:
    return LengthLaw(law, longest).draw(numpy_stream(2, "test"), n, shortest, longest)


@pytest.mark.parametrize(("law", "shortest", "longest"), [(Law(3, 3), 4, 9), (Law(4, 2), 10, 14)])
def test_trees_of_given_lengths_follow_the_law_of_rejection(law: Law, shortest: int, longest: int) -> None:
    """A chi-square test compares all outlines; it fails by chance with 10^-6."""
    n = 50_000
    chances = {text: chance for text, chance in outlines(law).items() if shortest <= len(text) <= longest}
    total = sum(chances.values())
    counts = Counter(map(outline, draw(law, n, shortest, longest).rows()))
    assert set(counts) <= set(chances)
    # The chi-square test needs expectations of five, so rarer outlines are counted together.
    rare = [text for text in chances if n * chances[text] / total < 5]
    common = [text for text in chances if text not in set(rare)]
    expected = [float(n * chances[text] / total) for text in common]
    observed = [counts[text] for text in common]
    if rare:
        expected.append(float(n * sum(chances[text] for text in rare) / total))
        observed.append(sum(counts[text] for text in rare))
    assert chisquare(observed, np.asarray(expected) * (n / sum(expected))).pvalue > 1e-6
