"""Measure decoded answers: exact match, its floor, length, and the scores of the task."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import torch

from trainables.decoding.search import answers
from trainables.heads.sequence import SequenceModel
from trainables.metrics import Metric
from trainables.settings import Settings
from trainables.task_catalog import task_module, task_name
from trainables.training.step import Learner, evaluating
from trainables.types import NOT_ASKED, Batch

Answers = Sequence[Sequence[int]]
Score = Callable[[Settings, Answers, Answers], Mapping[str, float]]
metrics = (
    Metric(
        "exact_match",
        "max",
        low=0.0,
        high=1.0,
        meaning="share of written answers that are right to the last token",
        shown=("table", "headline", "posthoc"),
        floor_from="exact_match_floor",
        floor_name="most common answer",
    ),
    Metric(
        "exact_match_floor",
        "max",
        low=0.0,
        high=1.0,
        shown=(),
        given="is fixed by the data and equal in every trial; choose the metric that it is a floor of",
    ),
    Metric("answer_length", unit="tokens", low=0.0, shown=()),
)


@torch.inference_mode()
def measure_writing(learner: Learner, batches: Iterable[Batch], task: Settings) -> dict[str, float]:
    """Return the `scores` of the decoded answers to all inputs in `batches`."""
    hypotheses: list[list[int]] = []
    references: list[list[int]] = []
    model = cast(SequenceModel, learner.model)
    with evaluating(learner):
        for batch in batches:
            hypotheses += answers(model, batch, learner.config)
            references += reference_answers(batch)
    return scores(task, hypotheses, references)


def reference_answers(batch: Batch) -> list[list[int]]:
    """Return the answers in the labels of `batch`, without their end tokens."""
    rows = batch.labels.tolist()
    return [[token for token in row if token != NOT_ASKED][:-1] for row in rows]


def scores(task: Settings, hypotheses: Answers, references: Answers) -> dict[str, float]:
    """Compare each answer in `hypotheses` with its reference; both are without end tokens.

    `exact_match` is the share of answers that are correct to the last token. `exact_match_floor` is the score
    of always giving the most common reference. `answer_length` is the mean number of tokens. The task's
    function `score(config, hypotheses, references)` adds further measures, e.g. BLEU.
    """
    pairs = [
        (tuple(hypothesis), tuple(reference))
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    commonest = max(Counter(reference for _, reference in pairs).values())
    score: Score | None = getattr(task_module(task_name(task)), "score", None)
    task_scores = {} if score is None else score(task, hypotheses, references)
    return {
        "exact_match": sum(hypothesis == reference for hypothesis, reference in pairs) / len(pairs),
        "exact_match_floor": commonest / len(pairs),
        "answer_length": sum(len(hypothesis) for hypothesis, _ in pairs) / len(pairs),
        **{name: float(value) for name, value in task_scores.items()},
    }
