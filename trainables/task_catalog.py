"""Finds tasks by name and reads what they declare: settings, shape, splits, labels, source files."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from trainables import catalog
from trainables.metrics import Metric, declared
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo, TaskModule
from trainables.types import Batch, TaskShape


class _NamedTask(BaseModel, extra="ignore", strict=True):
    name: str


def task_module(name: str) -> TaskModule:
    """The module that defines the task `name`. Raises `extensions.BadName`."""
    return cast(TaskModule, catalog.load("tasks", name))


def task_config(raw: Mapping[str, Any]) -> Settings:
    """The mapping `task` of a spec as checked settings, defaults filled in.

    Raises `extensions.BadName` for a `name` that is no task and `pydantic.ValidationError` for every other
    fault; locations in the error are relative to `raw`.
    """
    name = _NamedTask.model_validate(dict(raw)).name
    return catalog.config_class("tasks", name).model_validate(dict(raw))


def task_name(config: Settings) -> str:
    """The name of the task that `config` belongs to."""
    return cast(str, getattr(config, "name"))  # noqa: B009 - every task's Config has it, Settings does not


def shape(config: Settings) -> TaskShape:
    """What a model must know of the task, without any data."""
    return task_module(task_name(config)).shape(config)


def splits(config: Settings) -> tuple[SplitInfo, ...]:
    """Every split of the task, without any data."""
    return task_module(task_name(config)).splits(config)


def training_only(config: Settings) -> frozenset[str]:
    """Fields of the task that change what is trained on, never what is measured.

    A task that has any names them in `TRAINING_ONLY`.
    """
    fields: frozenset[str] = getattr(task_module(task_name(config)), "TRAINING_ONLY", frozenset())
    return fields


def metrics(name: str) -> tuple[Metric, ...]:
    """What the task `name` declares of the values of its `score`; see `trainables.metrics`.

    Raises `extensions.BadName` for a name that is no task, ValueError for what is no declaration.
    """
    try:
        return declared(getattr(task_module(name), "metrics", ()))
    except ValueError as error:
        raise ValueError(f"the task {name} declares what cannot be: {error}") from error


def headline(name: str) -> str:
    """The quantity that the task `name` is judged by; empty where it is the first that is one for all tasks.

    A task that knows better names it in `HEADLINE`. Raises `extensions.BadName` for a name that is no task.
    """
    return str(getattr(task_module(name), "HEADLINE", ""))


def label_names(config: Settings) -> tuple[str, ...]:
    """What each class, or each token of an answer, is called; its number where the task does not say.

    A task that knows better has a function `label_names(config)`.
    """
    names: Callable[[Settings], tuple[str, ...]] | None = getattr(
        task_module(task_name(config)), "label_names", None
    )
    return tuple(map(str, range(shape(config).num_classes))) if names is None else names(config)


def decode(config: Settings, tokens: Sequence[int]) -> str:
    """One input as a person would write it."""
    module = task_module(task_name(config))
    own_words = "config" in inspect.signature(module.decode).parameters
    written: Callable[..., str] = module.decode
    return written(tokens, config) if own_words else written(tokens)


def picture(config: Settings, tokens: Sequence[int]) -> str:
    """One input as a drawing of several lines; empty for tasks that are no pictures.

    A task of pictures has a function `picture(tokens)`.
    """
    drawn: Callable[[Sequence[int]], str] | None = getattr(task_module(task_name(config)), "picture", None)
    return "" if drawn is None else drawn(tokens)


def source_digest(module: TaskModule, config: Settings) -> str | None:
    """Hash of the files that the task reads, None for one that is generated.

    Only a task that can read files has a function `source_digest(config)`; it raises `ValueError` for files
    that are not there.
    """
    digest: Callable[[Settings], str | None] | None = getattr(module, "source_digest", None)
    return None if digest is None else digest(config)


def require_files(config: Settings) -> None:
    """Raises `ValueError` if files that the task reads are not there, saying what to put where.

    Reads none of them. Every task with a `source_digest` has a function `require_files(config)`.
    """
    module = task_module(task_name(config))
    check: Callable[[Settings], None] | None = getattr(module, "require_files", None)
    if check is not None:
        check(config)


def stream(config: Settings, batch_size: int, seed: int, step: int) -> Batch:
    """The training batch of a step, of a task whose train split is streamed."""
    draw: Callable[[Settings, int, int, int], Batch] = vars(task_module(task_name(config)))["stream"]
    return draw(config, batch_size, seed, step)
