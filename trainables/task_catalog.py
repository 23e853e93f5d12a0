"""Finds tasks by name and reads what they declare: settings, shape, splits, labels, source files."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel

from trainables import catalog
from trainables.metrics import Metric, declared
from trainables.settings import Settings
from trainables.task_protocol import Role, SplitInfo, TaskModule
from trainables.types import Batch, HeadKind, TaskShape


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
    """What a model must know of the task, without any data. Raises `ValueError` for what is no such thing."""
    found = task_module(task_name(config)).shape(config)
    for fault in _shape_faults(found):
        raise ValueError(f"shape(config) of the task {task_name(config)} must return a TaskShape {fault}")
    return found


def splits(config: Settings) -> tuple[SplitInfo, ...]:
    """Every split of the task, without any data. Raises `ValueError` for what are no splits."""
    found = task_module(task_name(config)).splits(config)
    for fault in _splits_faults(found):
        raise ValueError(f"splits(config) of the task {task_name(config)} must return {fault}")
    return tuple(found)


def _shape_faults(found: object) -> Iterator[str]:
    """What a task of anybody's got wrong, to follow "a TaskShape"."""
    if not isinstance(found, TaskShape):
        yield f"of trainables.types, got {type(found).__name__}"
        return
    if found.head not in get_args(HeadKind):
        yield f"with a head of {', '.join(get_args(HeadKind))}, got {found.head!r}"
    for name in ("vocabulary_size", "num_classes", "length_max"):
        value = getattr(found, name)
        if type(value) is not int or value < 1:
            yield f"with a whole number from 1 as {name}, got {value!r}"
            return
    for name in ("pad_id", "separator_id"):
        value = getattr(found, name)
        if value is None and name == "separator_id" and found.head != "pair":
            continue
        if type(value) is not int or not 0 <= value < found.vocabulary_size:
            yield f"with an id below vocabulary_size={found.vocabulary_size} as {name}, got {value!r}"


def _splits_faults(found: Any) -> Iterator[str]:
    """The same of splits, to follow "must return"."""
    listed: list[Any] = list(found) if isinstance(found, list | tuple) else []
    strange = [each for each in listed if not isinstance(each, SplitInfo)]
    if strange or not isinstance(found, list | tuple):
        kind = type(strange[0] if strange else found).__name__
        yield f"a tuple of trainables.task_protocol.SplitInfo, got {kind}"
        return
    for each in listed:
        if each.role not in get_args(Role):
            yield f"splits with a role of {', '.join(get_args(Role))}, got {each.role!r} for {each.name!r}"
        ends = (each.length_min, each.length_max)
        if not all(type(end) is int for end in ends) or not 1 <= ends[0] <= ends[1]:
            yield f"lengths that are whole numbers from 1 and go up, got {ends} for {each.name!r}"
        if each.streamed and each.role != "train":
            yield f"no streamed split but that to train on, got {each.name!r} with the role {each.role!r}"
    names = [each.name for each in listed]
    if not all(isinstance(name, str) and name and "/" not in name for name in names):
        yield f"splits with names without a slash, got {names}"
    elif len({*names}) < len(names):
        yield f"splits with different names, got {names}"
    for role in ("train", "valid"):
        if (many := sum(each.role == role for each in listed)) != 1:
            yield f"one split of the role {role}, got {many}"


def training_only(config: Settings) -> frozenset[str]:
    """Fields of the task that change what is trained on, never what is measured.

    A task that has any names them in `TRAINING_ONLY`.
    """
    fields: frozenset[str] = getattr(task_module(task_name(config)), "TRAINING_ONLY", frozenset())
    return fields


def settled(config: Settings) -> Settings:
    """Settings that make the same data, alike for all that do.

    A task where some can be left out and follow from others, or do nothing beside others, has a function
    `settled(config)`.
    """
    found: Callable[[Settings], Settings] | None = getattr(task_module(task_name(config)), "settled", None)
    return config if found is None else found(config)


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


def token_classes(config: Settings) -> tuple[str, ...]:
    """The class of every token id, e.g. `operator`; empty where the task knows none.

    A task that does has a function `token_classes(config)`. What it calls `operator` is counted.
    """
    classes: Callable[[Settings], tuple[str, ...]] | None = getattr(
        task_module(task_name(config)), "token_classes", None
    )
    return () if classes is None else tuple(classes(config))


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
