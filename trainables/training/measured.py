"""What a trial of the built-in trainable measures, gathered from the files that compute it."""

import importlib
from collections.abc import Iterable
from itertools import chain
from typing import Any, get_args

from trainables import task_catalog
from trainables.metrics import Metric, declared
from trainables.training import accumulator, evaluate, workload, writing
from trainables.types import HeadKind


def metrics_of(
    tasks: Iterable[str] = (), heads: Iterable[HeadKind] = get_args(HeadKind)
) -> tuple[Metric, ...]:
    """All that is declared of tasks by their names and of heads, each once, most wanted first.

    Raises `extensions.BadName` for a task that is none, ValueError for a declaration that is none.
    """
    kinds = set(heads)
    parts: list[Iterable[Metric]] = [
        *(sorted(task_catalog.metrics(name), key=lambda each: each.name) for name in tasks),
        writing.metrics if "sequence" in kinds else (),
        evaluate.quality,
        *(_of_head(head) for head in get_args(HeadKind) if head in kinds),
        evaluate.costs,
        accumulator.metrics,
        workload.metrics,
    ]
    found: dict[tuple[str, str], Metric] = {}
    for each in chain.from_iterable(parts):
        found.setdefault((each.split, each.name), each)
    return tuple(found.values())


def _of_head(head: HeadKind) -> tuple[Metric, ...]:
    module: Any = importlib.import_module(f"trainables.heads.{head}")
    return declared(getattr(module, "metrics", ()))
