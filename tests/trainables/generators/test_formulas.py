"""Generated formulas are well-formed, and their truth tables are those of the text."""

from itertools import pairwise

import numpy as np
import pytest

from tests.oracles.solvers.logical_inference_solver import holds_in
from trainables.generators.formulas import WORDS, Formulas, grow
from trainables.streams import numpy_stream


def texts(formulas: Formulas) -> list[str]:
    bounds = pairwise(formulas.offsets.tolist())
    return [" ".join(WORDS[t] for t in formulas.tokens[start:stop]) for start, stop in bounds]


def variables(n: int, selected: list[int]) -> np.ndarray:
    return np.tile(np.asarray(selected), (n, 1))


@pytest.fixture(scope="module")
def formulas() -> Formulas:
    return grow(numpy_stream(3, "test"), variables(30_000, [0, 2, 3, 5]))


def test_truth_tables_and_operators_match_the_text(formulas: Formulas) -> None:
    for index, text in enumerate(texts(formulas)[:400]):
        # The oracle varies the first variable slowest, the generator fastest.
        reversed_bits = {int(f"{world:06b}"[::-1], 2) for world in holds_in(text)}
        assert int(formulas.truth[index]) == sum(1 << world for world in reversed_bits)
        assert formulas.num_operators[index] == sum(text.split().count(word) for word in ("and", "or", "not"))


def test_formulas_follow_the_probabilities_of_the_process(formulas: Formulas) -> None:
    """30,000 roots: branching 4/9 and negation 1/3, within 5 standard errors; chance is 10^-6."""
    texts_ = texts(formulas)
    negated = np.mean([text.startswith("( not") for text in texts_])
    unnegated_texts = [text.removeprefix("( not ") for text in texts_]
    branching = np.mean([text.startswith("(") for text in unnegated_texts])
    error = 5 * np.sqrt(0.25 / len(texts_))
    assert negated == pytest.approx(1 / 3, abs=error)
    assert branching == pytest.approx(4 / 9, abs=error)
    counts = np.bincount(formulas.tokens, minlength=len(WORDS))[[2, 4, 5, 7]]
    assert counts == pytest.approx([counts.mean()] * 4, rel=0.05)
