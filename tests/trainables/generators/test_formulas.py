"""Formulas: every part of a row is where it belongs, and the truth table is that of the text."""

from itertools import pairwise

import numpy as np
import pytest

from tests.oracles.solvers.logical_inference_solver import holds_in
from trainables.generators.formulas import WORDS, Formulas, grow, longest, shortest
from trainables.streams import numpy_stream


def texts(formulas: Formulas) -> list[str]:
    bounds = pairwise(formulas.offsets.tolist())
    return [" ".join(WORDS[t] for t in formulas.tokens[start:stop]) for start, stop in bounds]


def variables(n: int, chosen: list[int]) -> np.ndarray:
    return np.tile(np.asarray(chosen), (n, 1))


@pytest.fixture(scope="module")
def many() -> Formulas:
    return grow(numpy_stream(3, "test"), variables(30_000, [0, 2, 3, 5]))


def test_truth_and_operators_are_those_of_the_text(many: Formulas) -> None:
    for index, text in enumerate(texts(many)[:400]):
        # The oracle counts worlds with the first variable as the slowest; ours has it as the fastest.
        reversed_bits = {int(f"{world:06b}"[::-1], 2) for world in holds_in(text)}
        assert int(many.truth[index]) == sum(1 << world for world in reversed_bits)
        assert many.operators[index] == sum(text.split().count(word) for word in ("and", "or", "not"))


def test_only_the_given_variables_occur(many: Formulas) -> None:
    assert {WORDS[token] for token in set(many.tokens.tolist())} == set(WORDS) - {"b", "e"}


def test_shares_are_those_of_the_process(many: Formulas) -> None:
    """30,000 roots: branching 4/9 and negation 1/3 each within 5 standard errors, odds of failing 10^-6."""
    found = texts(many)
    negated = np.mean([text.startswith("( not") for text in found])
    plain = [text.removeprefix("( not ") for text in found]
    branching = np.mean([text.startswith("(") for text in plain])
    error = 5 * np.sqrt(0.25 / len(found))
    assert negated == pytest.approx(1 / 3, abs=error)
    assert branching == pytest.approx(4 / 9, abs=error)
    counts = np.bincount(many.tokens, minlength=len(WORDS))[[2, 4, 5, 7]]
    assert counts == pytest.approx([counts.mean()] * 4, rel=0.05)


def test_bounds_of_lengths_are_met_and_never_passed(many: Formulas) -> None:
    lengths = np.diff(many.offsets)
    for operators in range(12):
        found = lengths[many.operators == operators]
        assert shortest(operators) <= found.min() <= found.max() <= longest(operators)
        if operators <= 6:
            assert (found.min(), found.max()) == (shortest(operators), longest(operators))
