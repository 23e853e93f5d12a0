"""Greedy decoding and beam search equal an enumeration of all answers."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.specs.examples import examples
from trainables.decoding.search import beam_search

END = 0
CPU = torch.device("cpu")


class RandomDecoder:
    """A decoder with random log-probabilities that depend on the input and all written tokens."""

    def __init__(self, inputs: list[int], classes: int, width: int = 1, flat: bool = False) -> None:
        self.classes, self.width, self.flat = classes, width, flat
        self.rows: list[tuple[int, ...]] = [(number,) for number in inputs for _ in range(width)]
        self.work: list[int] = []

    def next(self, tokens: Tensor) -> Tensor:
        self.work.append(len(self.rows))
        self.rows = [(*row, token) for row, token in zip(self.rows, tokens.tolist(), strict=True)]
        return torch.stack([self.log_p(row) for row in self.rows])

    def log_p(self, row: tuple[int, ...]) -> Tensor:
        if self.flat:
            return torch.zeros(self.classes).log_softmax(0)
        stream = torch.Generator().manual_seed(hash(row) % 2**40)
        return (2 * torch.randn(self.classes, generator=stream, dtype=torch.float64)).log_softmax(0)

    def reorder(self, rows: Tensor) -> None:
        for place, row in enumerate(rows.tolist()):
            assert row // self.width == place // self.width, "a hypothesis must stay with its input"
        self.rows = [self.rows[row] for row in rows.tolist()]

    def keep(self, inputs: Tensor) -> None:
        self.rows = [
            self.rows[number * self.width + candidate]
            for number in inputs.tolist()
            for candidate in range(self.width)
        ]

    def score(self, number: int, answer: list[int]) -> float:
        """Return the log-probability of a whole answer with its end."""
        total, row = 0.0, (number, END)
        for token in [*answer, END]:
            total += float(self.log_p(row)[token])
            row = (*row, token)
        return total


def every_answer(classes: int, length_max: int) -> list[list[int]]:
    words = range(1, classes)
    return [list(answer) for length in range(length_max) for answer in product(words, repeat=length)]


def search(inputs: list[int], classes: int, length_max: int, beam: int, penalty: float) -> list[list[int]]:
    table = RandomDecoder(inputs, classes, beam)
    return beam_search(table, len(inputs), END, length_max, CPU, beam_size=beam, length_penalty=penalty)


@examples(25)
@given(st.integers(0, 10**6), st.integers(2, 3), st.integers(1, 4), st.sampled_from([0.0, 0.4, 1.0]))
def test_beam_with_all_answers_finds_the_best_answer(seed, classes, length_max, penalty):
    answers = every_answer(classes, length_max)
    inputs = [seed, seed + 1]
    results = search(inputs, classes, length_max, len(answers), penalty)
    for number, answer in zip(inputs, results, strict=True):
        table = RandomDecoder([number], classes)
        best = max(
            answers, key=lambda candidate: table.score(number, candidate) / (len(candidate) + 1) ** penalty
        )
        assert answer == best


@examples(25)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6), st.integers(2, 9), st.integers(1, 7))
def test_greedy_decoding_takes_the_most_probable_token(inputs, classes, length_max):
    table = RandomDecoder(inputs, classes)
    results = search(inputs, classes, length_max, 1, 0.7)
    for number, answer in zip(inputs, results, strict=True):
        expected: list[int] = []
        while len(expected) < length_max - 1:
            token = int(table.log_p((number, END, *expected)).argmax())
            if token == END:
                break
            expected.append(token)
        assert answer == expected


def beam_search_by_lists(
    table: RandomDecoder, number: int, length_max: int, beam: int, penalty: float
) -> list[int]:
    """Search for one input with lists and sorting."""
    unfinished: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, length_max + 1):
        continued = [
            (score + float(log_p), [*answer, token])
            for score, answer in unfinished
            for token, log_p in enumerate(table.log_p((number, END, *answer)))
            if token == END or length < length_max
        ]
        ranked = sorted(continued, key=lambda candidate: -candidate[0])
        finished += [
            (score / length**penalty, answer[:-1]) for score, answer in ranked[:beam] if answer[-1] == END
        ]
        unfinished = [candidate for candidate in ranked if candidate[1][-1] != END][:beam]
        best = max((score for score, _ in finished), default=float("-inf"))
        if not unfinished or (len(finished) >= beam and unfinished[0][0] / length**penalty <= best):
            break
    return max(finished, key=lambda candidate: candidate[0])[1]


@examples(20)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
    st.integers(2, 6),
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.4, 1.5]),
)
def test_search_of_a_batch_equals_search_of_each_input(inputs, classes, length_max, beam, penalty):
    results = search(inputs, classes, length_max, beam, penalty)
    table = RandomDecoder(inputs, classes)
    assert results == [beam_search_by_lists(table, number, length_max, beam, penalty) for number in inputs]


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_ties_are_resolved_by_the_first_token(beam):
    """Every token is as probable as the end, which has the lowest id, so the empty answer ends first."""
    table = RandomDecoder([1, 2], 4, beam, flat=True)
    assert beam_search(table, 2, END, 5, CPU, beam_size=beam, length_penalty=0.0) == [[], []]
    last = RandomDecoder([1], 3, beam, flat=True)
    expected = [0, 0, 0] if beam < 3 else [0, 0]
    assert beam_search(last, 1, 2, 4, CPU, beam_size=beam, length_penalty=9.0) == [expected]
