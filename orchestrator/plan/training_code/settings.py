"""From raw settings to full, checked ones, or to all that is wrong with them; in what two settings differ."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.plan.types import Change
from orchestrator.spec.field_paths import bare
from orchestrator.spec.retired import RETIRED
from orchestrator.spec.sizes import beyond
from search_spaces.dimensions import Assignment, Value
from search_spaces.paths import MISSING, ROOTS, leaves, overlap, with_values
from search_spaces.wording import hint, nearest, shown
from trainables import catalog
from trainables.assembly import kernel_misfit, misfit, model_config, ungraphed
from trainables.custom.extensions import BadName
from trainables.settings import LATER, MOST, Settings
from trainables.task_catalog import shape, splits, task_config, task_name
from trainables.training import sources
from trainables.training.config import TrainConfig, train_config
from trainables.types import TaskShape

_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Settings]]] = {
    "task": task_config,
    "model": model_config,
    "train": train_config,
}
_KINDS: Final[Mapping[str, catalog.Kind]] = {"task": "tasks", "model": "models"}
READ_MAX: Final = 10_000
"""Parts of settings that are kept as they were read."""
_READ: Final[dict[tuple[str, type[BaseModel], str], "ReadPart | list[SettingFault]"]] = {}
"""By root, class and what is set, in the words of Python: JSON takes four times as long."""
_WORDS: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}
"""What a value must be where pydantic says it in the words of Python."""
_MAYBE_MORE: Final = re.compile(r"\d{10}")
"""What JSON has where a whole number is larger than that."""
_QUOTED: Final = re.compile(r"'([^']*)'")


@dataclass(frozen=True, slots=True)
class SettingFault:
    """One thing wrong with settings."""

    path: str
    """Dotted path, e.g. `model.halt.threshold`; a root alone where a whole part is at fault."""
    message: str


@dataclass(frozen=True, slots=True)
class System:
    """Settings that can be trained: as plain values and as the trainables read them."""

    settings: Mapping[str, Any]
    """`task`, `model` and `train` with every default filled in."""
    task: Settings
    model: Settings
    train: TrainConfig
    shape: TaskShape


@dataclass(frozen=True, slots=True, eq=False)
class ReadPart:
    """Task, model or train as it was read; one that was read twice is one object."""

    config: Settings
    settings: Mapping[str, Any]
    """With every default filled in."""


def checked(raw: Mapping[str, Any]) -> System | list[SettingFault]:
    """The system that `raw` describes, or all that is wrong with it."""
    return Joining().joined({root: _read(root, raw[root]) for root in ROOTS})


def readable_parts(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Those of task, model and train in `raw` with which nothing is wrong, as they are read."""
    found = {root: _read(root, raw[root]) for root in ROOTS}
    return {root: part.settings for root, part in found.items() if isinstance(part, ReadPart)}


def task_of(raw: Mapping[str, Any]) -> Settings | None:
    """The task in `raw`; None if something is wrong with its own settings."""
    found = _read("task", raw["task"])
    return found.config if isinstance(found, ReadPart) else None


def written(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`settings` of a system as a plan holds them: fields that are marked as `LATER` only if they are set."""
    later = {
        name: field.default for name, field in TrainConfig.model_fields.items() if LATER in field.metadata
    }
    train = {
        name: value for name, value in settings["train"].items() if name not in later or value != later[name]
    }
    return {**settings, "train": train}


class Joining:
    """Makes systems of task, model and train. What it has asked of parts it does not ask of them again."""

    def __init__(self) -> None:
        self._shape = cache(_shape)
        self._model_misfit = cache(_model_misfit)
        self._order_misfit = cache(_order_misfit)
        self._graph_misfit = cache(_graph_misfit)

    def joined(self, found: Mapping[str, ReadPart | list[SettingFault]]) -> System | list[SettingFault]:
        """The system of these parts, by root, or all that is wrong with it."""
        parts: dict[str, ReadPart] = {}
        problems: list[SettingFault] = []
        for root, part in found.items():
            if isinstance(part, list):
                problems += part
            else:
                parts[root] = part
        if problems:
            return problems
        task, model, train = (parts[root] for root in ROOTS)
        assert isinstance(train.config, TrainConfig)
        try:
            asked = self._shape(task)
        except ValueError as error:  # a vocabulary that is not where the task reads it, or code that is wrong
            return [SettingFault("task", str(error))]
        precision = train.config.precision
        checks: Mapping[str, Callable[[], str | None]] = {
            "model": lambda: self._model_misfit(model, asked),
            "train.order": lambda: self._order_misfit(task, train),
            "model.attention": lambda: kernel_misfit(model.config, precision),
            "train.graph": lambda: self._graph_misfit(model, train, asked),
        }
        for path, misfit_of in checks.items():
            if (why := misfit_of()) is not None:
                return [SettingFault(path, why)]
        settings = {root: part.settings for root, part in parts.items()}
        return System(settings, task.config, model.config, train.config, asked)


def _shape(task: ReadPart) -> TaskShape:
    """What a model must know of the task. Raises ValueError."""
    asked = shape(task.config)
    if catalog.is_outside("tasks", task_name(task.config)):
        splits(task.config)
    return asked


def _model_misfit(model: ReadPart, asked: TaskShape) -> str | None:
    return misfit(model.config, asked)


def _order_misfit(task: ReadPart, train: ReadPart) -> str | None:
    assert isinstance(train.config, TrainConfig)
    return sources.misfit(task.config, train.config)


def _graph_misfit(model: ReadPart, train: ReadPart, asked: TaskShape) -> str | None:
    assert isinstance(train.config, TrainConfig)
    return ungraphed(model.config, asked) if train.config.graph is True else None


class Variants:
    """Systems of settings with what a search draws: a part in which it draws the same is read once."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._parts: dict[tuple[str, str], ReadPart | list[SettingFault] | None] = {}
        self._joining = Joining()

    def __call__(self, draw: Assignment) -> System | list[SettingFault] | None:
        """What `checked` says of the settings with `draw` in them; None where that is nowhere to be put."""
        drawn: dict[str, dict[str, Value]] = {root: {} for root in ROOTS}
        for path, value in draw.items():
            drawn[path.partition(".")[0]][path] = value
        found: dict[str, ReadPart | list[SettingFault]] = {}
        for root, values in drawn.items():
            if (part := self._part(root, values)) is None:
                return None
            found[root] = part
        return self._joining.joined(found)

    def _part(self, root: str, values: Assignment) -> ReadPart | list[SettingFault] | None:
        key = root, repr(values)
        if key not in self._parts:
            try:
                raw = with_values(self._settings, values)[root]
            except ValueError:
                self._parts[key] = None
            else:
                self._parts[key] = _read_anew(root, raw)  # as plain as JSON, and seldom drawn for others
        return self._parts[key]


def widths(system: System) -> dict[str, int | None]:
    """Every width of its model by dotted path, as it is set: None where it follows from another."""
    return {path: value for path, value in leaves(system.settings["model"]) if path.endswith("width")}


def common_factor(one: Mapping[str, int | None], other: Mapping[str, int | None], most: int) -> int:
    """The power of two by which all widths of two models can be divided, such that `width` is near `most`."""
    shared = gcd(*(width for each in (one, other) for width in each.values() if width is not None))
    widest, factor = max(each.get("width") or 1 for each in (one, other)), 1
    while widest // factor > most and shared % (2 * factor) == 0:
        factor *= 2
    return factor


def divided(system: System, factor: int) -> System:
    """`system` with every width of its model divided by `factor`, all else as it was.

    A width is a size of vectors, and what a setting does shows in short ones too, at a fraction of the work.
    One that follows from others is a multiple of them, and so it still is. `system` itself where its model is
    from outside, which may mean anything by a width, or where the smaller model could not be trained.
    """
    model = system.settings["model"]
    if factor == 1 or catalog.is_outside("models", model["name"]):
        return system
    found = checked({**system.settings, "model": _divided(model, factor)})
    return found if isinstance(found, System) else system


def _divided(settings: Mapping[str, Any], factor: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found[name] = _divided(value, factor)
        elif name.endswith("width") and isinstance(value, int):
            found[name] = value // factor
        else:
            found[name] = value
    return found


def part_problems(root: str, raw: Mapping[str, Any]) -> list[SettingFault]:
    """Everything wrong with the part `root` (task, model or train) of the settings."""
    found = _read(root, raw)
    return found if isinstance(found, list) else []


def _read(root: str, raw: Mapping[str, Any]) -> ReadPart | list[SettingFault]:
    """A part of the settings. What is of the box is read once: thousands of draws of a search share parts."""
    kind = _KINDS.get(root)
    if kind is not None and catalog.is_outside(kind, str(raw.get("name"))):
        return _read_anew(root, raw)
    try:
        config = _config_class(root, raw)
    except BadName:  # a package gives something of its own the name that one of the box has
        return _read_anew(root, raw)
    key = root, config, repr(raw)
    if (known := _READ.get(key)) is not None:
        return known
    try:
        found = _read_anew(root, json.loads(json.dumps(raw)))
    except TypeError:  # it holds what JSON does not, and is refused
        return _read_anew(root, raw)
    if len(_READ) >= READ_MAX:
        _READ.pop(next(iter(_READ)), None)
    _READ[key] = found
    return found


def _read_anew(root: str, raw: Mapping[str, Any]) -> ReadPart | list[SettingFault]:
    try:
        config = _READERS[root](raw)
        settings = config.model_dump(mode="json")
        return _too_many(root, config) or ReadPart(config, settings)
    except BadName as error:
        return [SettingFault(f"{root}.name", str(error) + _other_kind(root, raw.get("name")))]
    except ValidationError as error:
        kind = _config_class(root, raw)
        return [described(kind, (root,), one) for one in error.errors(include_url=False)]


def _too_many(root: str, config: Settings) -> list[SettingFault]:
    if not _MAYBE_MORE.search(config.model_dump_json()):
        return []
    return [
        SettingFault(path, beyond(MOST, value))
        for path, value in _numbers(config.model_dump(), f"{root}.")
        if not path.endswith("seed") and value > MOST
    ]


def _numbers(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, int]]:
    """Every whole number, those in lists by the path of the list and their positions."""
    for path, value in leaves(settings, prefix):
        if isinstance(value, list | tuple):
            yield from _numbers({str(place): each for place, each in enumerate(value)}, f"{path}.")
        elif isinstance(value, int):
            yield path, value


def _other_kind(root: str, name: Any) -> str:
    """Whether a task was named where a model belongs, or the other way round."""
    other: catalog.Kind = "tasks" if root == "model" else "models"
    return f". {name!r} is a {other.removesuffix('s')}" if name in catalog.names(other) else ""


def described(config: type[BaseModel], above: tuple[str, ...], error: ErrorDetails) -> SettingFault:
    """What pydantic found wrong with settings at the path `above`, read as `config`, in our words."""
    loc, given, message = error["loc"], error["input"], error["msg"]
    path = ".".join([*above, *map(str, loc)])
    match error["type"]:
        case "extra_forbidden":
            fields = _fields_at(config, loc[:-1])
            unknown = f"no field {path}. {hint(str(loc[-1]), fields)}"
            return SettingFault(path, RETIRED.get(path, unknown))
        case "missing":
            return SettingFault(path, "is required")
        case "value_error":
            return SettingFault(path, message.removeprefix("Value error, "))
        case kind if kind in _WORDS:
            return SettingFault(
                path, f"must be {_WORDS[kind].format(**error.get('ctx', {}))}, got {shown(given)}"
            )
        case "literal_error":
            near = nearest(given, _QUOTED.findall(message)) if isinstance(given, str) else None
            question = f". Did you mean {near!r}?" if near is not None else ""
            return SettingFault(path, f"{_must(message)}, got {shown(given)}{question}")
        case _:
            return SettingFault(path, f"{_must(message)}, got {shown(given)}")


def _must(message: str) -> str:
    return message.replace("Input should", "must")


def _config_class(root: str, raw: Mapping[str, Any]) -> type[BaseModel]:
    if root == "train":
        return TrainConfig
    return catalog.config_class("tasks" if root == "task" else "models", raw["name"])


def _fields_at(config: type[BaseModel], loc: tuple[str | int, ...]) -> tuple[str, ...]:
    """Names of the fields at `loc` inside `config`; none where that is no mapping of fields."""
    kind: Any = config
    for key in loc:
        field = kind.model_fields.get(str(key)) if _is_model(kind) else None
        kind = None if field is None else bare(field.annotation)
    return tuple(kind.model_fields) if _is_model(kind) else ()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def fields_of(root: str, name: str) -> frozenset[str]:
    """Top-level fields of the task or model called `name`. Raises `BadName`."""
    return frozenset(_config_class(root, {"name": name}).model_fields)


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> tuple[Change, ...]:
    """Every field that differs, outermost where one side has no mapping. What is absent counts as null."""
    found: list[Change] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, MISSING), after.get(key, MISSING)
        path = f"{prefix}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{path}.")
        elif type(old) is not type(new) or old != new:
            found.append(Change(path, _null(old), _null(new)))
    return tuple(found)


def undeclared(changes: Iterable[Change], declared: Iterable[str]) -> tuple[Change, ...]:
    """The changes that touch none of the `declared` paths. A change of name declares its whole part."""
    paths = [path.removesuffix(".name") if path.count(".") == 1 else path for path in declared]
    return tuple(change for change in changes if not any(overlap(change.path, path) for path in paths))


def _null(value: Any) -> Any:
    return None if value is MISSING else value
