"""Find tasks by name and return their declared settings, shape, splits, labels and source files."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel

from trainables import catalog
from trainables.metrics import Metric, parse_metrics
from trainables.settings import Settings
from trainables.task_protocol import Role, SplitInfo, TaskModule
from trainables.types import Batch, HeadKind, TaskShape


class _NamedTask(BaseModel, extra="ignore", strict=True):
    name: str


def task_module(name: str) -> TaskModule:
    """Return the module that defines the task `name`. Raises `extensions.BadName`."""
    return cast(TaskModule, catalog.load("tasks", name))


def task_config(raw: Mapping[str, Any]) -> Settings:
    """Return the mapping `task` of a spec as validated settings with defaults filled in.

    Raises:
        extensions.BadName: `name` is not a task.
        pydantic.ValidationError: Any other fault. Locations in the error are relative to `raw`.
    """
    name = _NamedTask.model_validate(dict(raw)).name
    return catalog.config_class("tasks", name).model_validate(dict(raw))


def task_name(config: Settings) -> str:
    """Return the name of the task whose settings `config` holds."""
    return cast(str, getattr(config, "name"))  # noqa: B009 - Settings has no field `name`


def shape(config: Settings) -> TaskShape:
    """Return the shape of the task, computed without any data.

    Raises:
        ValueError: The task's `shape` returns an invalid value.
    """
    shape_of_task = task_module(task_name(config)).shape(config)
    for fault in _shape_faults(shape_of_task):
        raise ValueError(f"shape(config) of the task {task_name(config)} must return a TaskShape {fault}")
    return shape_of_task


def splits(config: Settings) -> tuple[SplitInfo, ...]:
    """Return all splits of the task, computed without any data.

    Raises:
        ValueError: The task's `splits` returns invalid values.
    """
    infos = task_module(task_name(config)).splits(config)
    for fault in _split_faults(infos):
        raise ValueError(f"splits(config) of the task {task_name(config)} must return {fault}")
    return tuple(infos)


def _shape_faults(shape: object) -> Iterator[str]:
    """Yield a message for each fault of a shape; the message continues the words "a TaskShape"."""
    if not isinstance(shape, TaskShape):
        yield f"of trainables.types, got {type(shape).__name__}"
        return
    if shape.head not in get_args(HeadKind):
        yield f"with a head of {', '.join(get_args(HeadKind))}, got {shape.head!r}"
    for name in ("vocabulary_size", "num_classes", "length_max"):
        value = getattr(shape, name)
        if type(value) is not int or value < 1:
            yield f"with a whole number from 1 as {name}, got {value!r}"
            return
    for name in ("pad_id", "separator_id"):
        value = getattr(shape, name)
        if value is None and name == "separator_id" and shape.head != "pair":
            continue
        if type(value) is not int or not 0 <= value < shape.vocabulary_size:
            yield f"with an id below vocabulary_size={shape.vocabulary_size} as {name}, got {value!r}"


def _split_faults(value: Any) -> Iterator[str]:
    """Yield a message for each fault of splits; the message continues the words "must return"."""
    infos: list[Any] = list(value) if isinstance(value, list | tuple) else []
    invalid_items = [item for item in infos if not isinstance(item, SplitInfo)]
    if invalid_items or not isinstance(value, list | tuple):
        kind = type(invalid_items[0] if invalid_items else value).__name__
        yield f"a tuple of trainables.task_protocol.SplitInfo, got {kind}"
        return
    for info in infos:
        if info.role not in get_args(Role):
            yield f"splits with a role of {', '.join(get_args(Role))}, got {info.role!r} for {info.name!r}"
        bounds = (info.length_min, info.length_max)
        if not all(type(end) is int for end in bounds) or not 1 <= bounds[0] <= bounds[1]:
            yield f"lengths that are whole numbers from 1 and go up, got {bounds} for {info.name!r}"
        if info.streamed and info.role != "train":
            yield f"no streamed split but that to train on, got {info.name!r} with the role {info.role!r}"
    names = [info.name for info in infos]
    if not all(isinstance(name, str) and name and "/" not in name for name in names):
        yield f"splits with names without a slash, got {names}"
    elif len({*names}) < len(names):
        yield f"splits with different names, got {names}"
    for role in ("train", "valid"):
        if (num_splits := sum(info.role == role for info in infos)) != 1:
            yield f"one split of the role {role}, got {num_splits}"


def training_only(config: Settings) -> frozenset[str]:
    """Return the fields of the task that affect only the training data, never the evaluation data.

    A task with such fields lists them in `TRAINING_ONLY`.
    """
    fields: frozenset[str] = getattr(task_module(task_name(config)), "TRAINING_ONLY", frozenset())
    return fields


def settled(config: Settings) -> Settings:
    """Return normalised settings, which are equal for all settings that produce the same data.

    A task has a function `settled(config)` if some of its settings follow from others or have no effect next
    to others.
    """
    settle: Callable[[Settings], Settings] | None = getattr(task_module(task_name(config)), "settled", None)
    return config if settle is None else settle(config)


def metrics(name: str) -> tuple[Metric, ...]:
    """Return the metrics that the task `name` declares for its `score`, see `trainables.metrics`.

    Raises:
        extensions.BadName: `name` is not a task.
        ValueError: The declaration is invalid.
    """
    try:
        return parse_metrics(getattr(task_module(name), "metrics", ()))
    except ValueError as error:
        raise ValueError(f"the task {name} has an invalid declaration: {error}") from error


def headline(name: str) -> str:
    """Return the main quantity of the task `name`; empty for the first quantity common to all tasks.

    A task with another main quantity names it in `HEADLINE`. Raises `extensions.BadName` if `name` is not a
    task.
    """
    return str(getattr(task_module(name), "HEADLINE", ""))


def label_names(config: Settings) -> tuple[str, ...]:
    """Return the name of each class or answer token; its number if the task has no names.

    A task with names has a function `label_names(config)`.
    """
    names: Callable[[Settings], tuple[str, ...]] | None = getattr(
        task_module(task_name(config)), "label_names", None
    )
    return tuple(map(str, range(shape(config).num_classes))) if names is None else names(config)


def token_classes(config: Settings) -> tuple[str, ...]:
    """Return the class of every token id, e.g. `operator`; empty if the task has no token classes.

    A task with token classes has a function `token_classes(config)`. Tokens of the class `operator` are
    counted.
    """
    classes: Callable[[Settings], tuple[str, ...]] | None = getattr(
        task_module(task_name(config)), "token_classes", None
    )
    return () if classes is None else tuple(classes(config))


def decode(config: Settings, tokens: Sequence[int]) -> str:
    """Return one input as readable text."""
    module = task_module(task_name(config))
    has_config = "config" in inspect.signature(module.decode).parameters
    decode_tokens: Callable[..., str] = module.decode
    return decode_tokens(tokens, config) if has_config else decode_tokens(tokens)


def picture(config: Settings, tokens: Sequence[int]) -> str:
    """Return one input as a drawing of several lines; empty for tasks whose inputs are not pictures.

    A task with pictures has a function `picture(tokens)`.
    """
    draw_picture: Callable[[Sequence[int]], str] | None = getattr(
        task_module(task_name(config)), "picture", None
    )
    return "" if draw_picture is None else draw_picture(tokens)


def source_digest(module: TaskModule, config: Settings) -> str | None:
    """Return a hash of the files that the task reads; None for a generated task.

    Only a task that can read files has a function `source_digest(config)`. It raises `ValueError` for missing
    files.
    """
    digest: Callable[[Settings], str | None] | None = getattr(module, "source_digest", None)
    return None if digest is None else digest(config)


def require_files(config: Settings) -> None:
    """Raise `ValueError` if files that the task reads are missing, with the remedy.

    The check does not read the files. Every task with a `source_digest` has a function
    `require_files(config)`.
    """
    module = task_module(task_name(config))
    check: Callable[[Settings], None] | None = getattr(module, "require_files", None)
    if check is not None:
        check(config)


def stream(config: Settings, batch_size: int, seed: int, step: int) -> Batch:
    """Return the training batch of a step, for a task whose train split is streamed."""
    draw: Callable[[Settings, int, int, int], Batch] = vars(task_module(task_name(config)))["stream"]
    return draw(config, batch_size, seed, step)
