"""Algorithmic problems: examples of the paper, curriculum, forms, errors."""

from typing import Any

import numpy as np
import pytest

from trainables.generators.problems import PROBLEMS
from trainables.tasks import algorithms as task
from trainables.types import NOT_ASKED, Batch


def samples(batch: Batch) -> list[tuple[list[str], list[str], int]]:
    """Return the words of the input, the words of the answer, and the steps of each sample."""
    samples_ = []
    for tokens, mask, labels, steps in zip(
        batch.tokens, batch.mask, batch.labels, batch.steps.tolist(), strict=True
    ):
        answer_labels = labels[labels != NOT_ASKED].tolist()
        words = task.decode(tokens[mask].tolist()).split()
        assert (labels[: len(words) - len(answer_labels)] == NOT_ASKED).all(), (
            "the answer must stand at the end"
        )
        assert (labels[mask][len(words) - len(answer_labels) :] != NOT_ASKED).all()
        samples_.append((words, [task.WORDS[label] for label in answer_labels], steps))
    return samples_


def draw_samples(n: int = 40, step: int = 10**6, **settings: Any) -> list[tuple[list[str], list[str], int]]:
    return samples(task.stream(task.Config(**settings), n, 3, step))


@pytest.mark.parametrize(
    ("problem", "query", "answer", "steps"),
    [
        ("parity", "0 0 0 1 1", "0", 5),
        ("copy", "1 0 1", "1 0 1", 3),
        ("addition", "1 0 + 1 1", "1 0 1", 2),
        ("addition", "0 0 1 + 1 1 1", "1 0 0 0", 3),
        ("binary_sum", "1 0 1 1", "1 1", 4),
        ("multiplication", "1 1 x 1 1 0", "0 1 0 0 1", 6),
        ("unique_set", "1 4 2 2 4 3", "1 4 2 3", 6),
    ],
)
def test_problems_solve_the_examples_of_the_paper(problem: Any, query: str, answer: str, steps: int) -> None:
    """The paper's multiplication example shows six digits although its text asks for five: 3 * 6 is 18."""
    problem_ = PROBLEMS[problem]
    assert problem_.answer(query.split()) == answer.split()
    assert problem_.steps(query.split()) == steps


@pytest.mark.parametrize("problem", PROBLEMS)
def test_shape_has_the_greatest_number_of_steps(problem: Any) -> None:
    config = task.Config(problem=problem, carry_step=problem == "addition", test_examples=60)
    longest = max(config.test_lengths or PROBLEMS[problem].test_lengths)
    steps = task.build(config, f"length-{longest}")["steps"].to_pylist()
    assert max(steps) == task.shape(config).steps_max
    config_of_training = task.Config(problem=problem, length_max=70, test_lengths=[])
    assert task.shape(config_of_training).steps_max == 70 * (2 if problem == "multiplication" else 1)


def test_carry_step_adds_a_loop_to_additions() -> None:
    plain_samples, carried_samples = (
        draw_samples(problem="addition", carry_step=extra) for extra in (False, True)
    )
    assert [steps + 1 for _, _, steps in plain_samples] == [steps for _, _, steps in carried_samples]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_forms_have_the_same_queries_and_answers(problem: str) -> None:
    pause_tokens = 2
    full, samples_without_pauses = (
        draw_samples(problem=problem, pause_tokens=pause_tokens),
        draw_samples(problem=problem),
    )
    tokens = draw_samples(problem=problem, pause_tokens=pause_tokens, form="next_token")
    for (full_words, answer, steps), (token_words, answers, token_steps), (plain_words, _, _) in zip(
        full, tokens, samples_without_pauses, strict=True
    ):
        query = full_words[: full_words.index(">")]
        assert query == token_words[: len(query)] == plain_words[: len(query)]
        prompt = [*query, ">", *["<pause>"] * pause_tokens]
        words = [word for word in answer if word != "#"]
        assert answer == words + ["#"] * (len(answer) - len(words))
        assert full_words == prompt + ["#"] * (len(answer) - 1)
        assert token_words == prompt + words, "each answer must be the next input"
        assert answers == [*words, "#"]
        assert steps == token_steps
    assert not task.shape(task.Config(problem=problem)).causal
    assert task.shape(task.Config(problem=problem, form="next_token")).causal


@pytest.mark.parametrize(
    ("problem", "interval", "longest"),
    [
        ("parity", 500, 20),
        ("copy", 1000, 19),
        ("addition", 1600, 19),
        ("binary_sum", 500, 19),
        ("multiplication", 500, 11),
        ("unique_set", 1000, 19),
    ],
)
def test_curriculum_equals_the_published_one(problem: Any, interval: int, longest: int) -> None:
    config = task.Config(problem=problem)
    lengths = [
        task.max_query_length(config, step) for step in (0, interval - 1, interval, 5 * interval, 10**6)
    ]
    assert lengths == [1, 1, 2, 6, longest]
    config_without_curriculum = task.Config(problem=problem, interval=0)
    assert task.max_query_length(config_without_curriculum, 0) == longest


@pytest.mark.parametrize("problem", PROBLEMS)
def test_lengths_are_uniform_up_to_the_length_of_the_curriculum(problem: Any) -> None:
    """Each of 5 lengths has a fifth of 4,000 samples, within six standard errors; chance is 10^-8."""
    config = task.Config(problem=problem)
    samples_ = samples(task.stream(config, 4000, 1, 4 * PROBLEMS[problem].interval))
    lengths = [len(words[: words.index(">")]) for words, _, _ in samples_]
    if problem == "addition":
        lengths = [length // 2 for length in lengths]
    if problem == "multiplication":
        lengths = [words.index(">") - words.index("x") - 1 for words, _, _ in samples_]
    counts = np.bincount(lengths)
    assert len(counts) == 6
    assert counts[0] == 0
    assert counts[1:] / 4000 == pytest.approx([0.2] * 5, abs=6 * np.sqrt(0.16 / 4000))


def test_test_split_can_have_a_training_length() -> None:
    table = task.build(task.Config(test_lengths=(3, 20, 25), test_examples=30), "length-3")
    assert [task.decode(row).split().index(">") for row in table["tokens"].to_pylist()] == [3] * 30
    assert table["steps"].to_pylist() == [3] * 30
