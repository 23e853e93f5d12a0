"""Collect the metrics of the built-in trainable from the modules that compute them."""

import importlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

from trainables import task_catalog
from trainables.metrics import Metric, Place, parse_metrics
from trainables.training import accumulator, evaluate, work, workload, writing
from trainables.types import HeadKind

HEADLINE_PLACES: tuple[Place, ...] = ("table", "headline", "posthoc", "figure")


def declared_metrics(
    tasks: Iterable[str] = (), heads: Iterable[HeadKind] = get_args(HeadKind)
) -> tuple[Metric, ...]:
    """Return the metrics declared by tasks and heads, without duplicates, the most important ones first.

    Raises:
        extensions.BadName: A name is not a task.
        ValueError: A declaration is invalid.
    """
    head_kinds = set(heads)
    tasks = tuple(tasks)
    parts: list[Iterable[Metric]] = [
        *(sorted(task_catalog.metrics(name), key=lambda metric: metric.name) for name in tasks),
        writing.metrics if "sequence" in head_kinds else (),
        evaluate.quality,
        *(_head_metrics(head) for head in get_args(HeadKind) if head in head_kinds),
        evaluate.costs,
        accumulator.metrics,
        workload.metrics,
        work.metrics,
    ]
    by_name: dict[tuple[str, str], Metric] = {}
    for metric in chain.from_iterable(parts):
        by_name.setdefault((metric.split, metric.name), metric)
    return _headlines_first(by_name.values(), dict.fromkeys(map(task_catalog.headline, tasks)))


def _headlines_first(metrics: Iterable[Metric], headlines: Collection[str]) -> tuple[Metric, ...]:
    """Move the main quantities of tasks to the front of `metrics`, and mark them as main quantities."""
    first_metrics = {
        metric.name: replace(metric, shown=HEADLINE_PLACES) for metric in metrics if metric.name in headlines
    }
    first = [first_metrics[name] for name in headlines if name in first_metrics]
    return (*first, *(metric for metric in metrics if metric.name not in first_metrics))


def _head_metrics(head: HeadKind) -> tuple[Metric, ...]:
    module: Any = importlib.import_module(f"trainables.heads.{head}")
    return parse_metrics(getattr(module, "metrics", ()))
