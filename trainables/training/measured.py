"""Collect the metrics of the built-in trainable from the modules that compute them."""

import importlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

from trainables import task_catalog
from trainables.metrics import Metric, Place, declared
from trainables.training import accumulator, evaluate, work, workload, writing
from trainables.types import HeadKind

HEADLINE_PLACES: tuple[Place, ...] = ("table", "headline", "posthoc", "figure")


def metrics_of(
    tasks: Iterable[str] = (), heads: Iterable[HeadKind] = get_args(HeadKind)
) -> tuple[Metric, ...]:
    """Return the declared metrics of tasks (by name) and heads, each once, the most important first.

    Raises:
        extensions.BadName: A name is not a task.
        ValueError: A declaration is invalid.
    """
    kinds = set(heads)
    tasks = tuple(tasks)
    parts: list[Iterable[Metric]] = [
        *(sorted(task_catalog.metrics(name), key=lambda each: each.name) for name in tasks),
        writing.metrics if "sequence" in kinds else (),
        evaluate.quality,
        *(_of_head(head) for head in get_args(HeadKind) if head in kinds),
        evaluate.costs,
        accumulator.metrics,
        workload.metrics,
        work.metrics,
    ]
    found: dict[tuple[str, str], Metric] = {}
    for each in chain.from_iterable(parts):
        found.setdefault((each.split, each.name), each)
    return _judged_first(found.values(), dict.fromkeys(map(task_catalog.headline, tasks)))


def _judged_first(metrics: Iterable[Metric], judged: Collection[str]) -> tuple[Metric, ...]:
    """Return the metrics with the main quantities of the tasks first, displayed as main quantities."""
    known = {each.name: replace(each, shown=HEADLINE_PLACES) for each in metrics if each.name in judged}
    first = [known[name] for name in judged if name in known]
    return (*first, *(each for each in metrics if each.name not in known))


def _of_head(head: HeadKind) -> tuple[Metric, ...]:
    module: Any = importlib.import_module(f"trainables.heads.{head}")
    return declared(getattr(module, "metrics", ()))
