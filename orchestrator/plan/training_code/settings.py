"""Validate raw settings and fill in defaults, or list all faults; compute differences of settings."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from types import UnionType
from typing import Any, Final, Union, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.errors import FaultCode
from orchestrator.plan.types import Change
from orchestrator.spec.field_paths import bare_type
from orchestrator.spec.retired import RETIRED
from orchestrator.spec.sizes import too_large_message
from search_spaces.dimensions import Assignment
from search_spaces.paths import MISSING, ROOTS, leaves, overlap, with_values
from search_spaces.wording import format_value, hint, nearest
from trainables import catalog
from trainables.assembly import kernel_misfit, misfit, model_config, ungraphed
from trainables.custom.extensions import BadName, describe_error
from trainables.settings import MAX_INTEGER, OMIT_DEFAULT, Settings
from trainables.task_catalog import shape, splits, task_config, task_name
from trainables.training import sources
from trainables.training.config import TrainConfig, train_config
from trainables.types import TaskShape

_PARSERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Settings]]] = {
    "task": task_config,
    "model": model_config,
    "train": train_config,
}
_KINDS: Final[Mapping[str, catalog.Kind]] = {"task": "tasks", "model": "models"}
MAX_CACHED_PARTS: Final = 10_000
"""Maximum number of cached parts of settings."""
_PART_CACHE: Final[dict[tuple[str, type[BaseModel], str], "ParsedPart | list[SettingFault]"]] = {}
"""Cache by root, class and `repr` of the raw settings, which is four times faster than JSON."""
_EXPECTED_VALUES: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}
"""Expected values in YAML terms, by pydantic error type."""
_LARGE_INTEGER: Final = re.compile(r"\d{10}")
"""Pattern of large integers in JSON, as a fast preliminary check."""
_QUOTED_TEXT: Final = re.compile(r"'([^']*)'")


@dataclass(frozen=True, slots=True)
class SettingFault:
    """A fault of settings."""

    path: str
    """Dotted path, e.g. `model.halt.threshold`; only the root for a fault of a complete part."""
    message: str
    code: FaultCode = FaultCode.INVALID_VALUE


@dataclass(frozen=True, slots=True)
class ParsedSettings:
    """Valid settings, as plain values and as parsed by the trainable."""

    settings: Mapping[str, Any]
    """`task`, `model` and `train`, including all defaults."""
    task: Settings
    model: Settings
    train: TrainConfig
    shape: TaskShape


@dataclass(frozen=True, slots=True, eq=False)
class ParsedPart:
    """Parsed task, model or train settings; equal parts share one object."""

    config: Settings
    settings: Mapping[str, Any]
    """Plain values including all defaults."""


def parse_settings(raw: Mapping[str, Any]) -> ParsedSettings | list[SettingFault]:
    """Return the system that `raw` describes, or all its faults."""
    return _join_parts({root: _read_part(root, raw[root]) for root in ROOTS})


def valid_parts(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the valid parts among task, model and train of `raw`, including defaults."""
    parts = {root: _read_part(root, raw[root]) for root in ROOTS}
    return {root: part.settings for root, part in parts.items() if isinstance(part, ParsedPart)}


def parse_task(raw: Mapping[str, Any]) -> Settings | None:
    """Return the task of `raw`; None if its settings are invalid."""
    part = _read_part("task", raw["task"])
    return part.config if isinstance(part, ParsedPart) else None


def to_stored_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `settings` in the form that a plan stores.

    Fields marked as `OMIT_DEFAULT` are stored only if they are not default.
    """
    fields = TrainConfig.model_fields
    later_defaults = {name: field.default for name, field in fields.items() if OMIT_DEFAULT in field.metadata}
    train = settings["train"].items()
    stored = {
        name: value for name, value in train if name not in later_defaults or value != later_defaults[name]
    }
    return {**settings, "train": stored}


def _join_parts(
    parts_by_root: Mapping[str, ParsedPart | list[SettingFault]],
) -> ParsedSettings | list[SettingFault]:
    """Return the system of the parts task, model and train, or all its faults."""
    if problems := [fault for part in parts_by_root.values() if isinstance(part, list) for fault in part]:
        return problems
    parts = {root: part for root, part in parts_by_root.items() if isinstance(part, ParsedPart)}
    task, model, train = (parts[root].config for root in ROOTS)
    assert isinstance(train, TrainConfig)
    try:
        task_shape = shape(task)
        if catalog.is_custom("tasks", task_name(task)):
            splits(task)
    except ValueError as error:  # a missing vocabulary file, or faulty task code
        return [SettingFault("task", str(error))]
    checks: Mapping[str, Callable[[], str | None]] = {
        "model": lambda: misfit(model, task_shape),
        "train.order": lambda: sources.find_misfit(task, train),
        "model.attention": lambda: kernel_misfit(model, train.precision),
        "train.graph": lambda: ungraphed(model, task_shape) if train.graph is True else None,
    }
    for path, find_misfit in checks.items():
        if (reason := find_misfit()) is not None:
            return [SettingFault(path, reason)]
    return ParsedSettings(
        {root: part.settings for root, part in parts.items()}, task, model, train, task_shape
    )


def validate_draw(
    settings: Mapping[str, Any], draw: Assignment
) -> ParsedSettings | list[SettingFault] | None:
    """Return the result of `parse_settings` for `settings` with `draw`; None if a path does not exist."""
    try:
        drawn_settings = with_values(settings, draw)
    except ValueError:
        return None
    return parse_settings(drawn_settings)


def widths(system: ParsedSettings) -> dict[str, int | None]:
    """Return every width of the model by dotted path; None for a width that derives from another."""
    return {path: value for path, value in leaves(system.settings["model"]) if path.endswith("width")}


def common_factor(first: Mapping[str, int | None], second: Mapping[str, int | None], limit: int) -> int:
    """Return the power of two by which to divide all widths of two models for a main width near `limit`."""
    known_widths = filter(None, (*first.values(), *second.values()))
    shared_factor, factor = gcd(*known_widths), 1
    widest = max(widths.get("width") or 1 for widths in (first, second))
    while widest // factor > limit and shared_factor % (2 * factor) == 0:
        factor *= 2
    return factor


def divide_widths_by(system: ParsedSettings, factor: int) -> ParsedSettings:
    """Return `system` with every width of its model divided by `factor`.

    Short vectors also show the effect of a setting, at a fraction of the cost. Derived widths remain
    multiples of the others. Return `system` itself for a custom model, whose widths may have another meaning,
    or if the smaller model cannot be trained.
    """
    model = system.settings["model"]
    if factor == 1 or catalog.is_custom("models", model["name"]):
        return system
    divided_system = parse_settings({**system.settings, "model": _divide_widths(model, factor)})
    return divided_system if isinstance(divided_system, ParsedSettings) else system


def _divide_widths(settings: Mapping[str, Any], factor: int) -> dict[str, Any]:
    def divide(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _divide_widths(value, factor)
        return value // factor if name.endswith("width") and isinstance(value, int) else value

    return {name: divide(name, value) for name, value in settings.items()}


def part_faults(root: str, raw: Mapping[str, Any]) -> list[SettingFault]:
    """Return all faults in the part `root` (task, model or train) of the settings."""
    part = _read_part(root, raw)
    return part if isinstance(part, list) else []


def _read_part(root: str, raw: Mapping[str, Any]) -> ParsedPart | list[SettingFault]:
    """Return a parsed part of the settings.

    Built-in parts are cached, since thousands of draws share them.
    """
    catalog_kind = _KINDS.get(root)
    if catalog_kind is not None and catalog.is_custom(catalog_kind, str(raw.get("name"))):
        return _parse_part(root, raw)
    try:
        config = _config_class(root, raw)
    except BadName:  # a package uses the name of a built-in part
        return _parse_part(root, raw)
    key = root, config, repr(raw)
    if (cached_part := _PART_CACHE.get(key)) is not None:
        return cached_part
    try:
        part = _parse_part(root, json.loads(json.dumps(raw)))
    except TypeError:  # settings that are not JSON are refused
        return _parse_part(root, raw)
    if len(_PART_CACHE) >= MAX_CACHED_PARTS:
        _PART_CACHE.pop(next(iter(_PART_CACHE)), None)
    _PART_CACHE[key] = part
    return part


def _parse_part(root: str, raw: Mapping[str, Any]) -> ParsedPart | list[SettingFault]:
    try:
        config = _PARSERS[root](raw)
        settings = config.model_dump(mode="json")
        return _large_number_faults(root, config) or ParsedPart(config, settings)
    except BadName as error:
        message = f"{error}{_confusion_remark(root, raw.get('name'))}"
        return [SettingFault(f"{root}.name", message, FaultCode.UNKNOWN_NAME)]
    except ValidationError as error:
        kind = _config_class(root, raw)
        return setting_faults(kind, (root,), error)
    except (Exception, SystemExit) as error:  # a Config of another package may raise any exception
        name = str(raw.get("name"))
        if root not in _KINDS or not catalog.is_custom(_KINDS[root], name):
            raise
        message = f"{name} refuses these settings: {describe_error(error)}"
        return [SettingFault(root, message, FaultCode.CUSTOM_CODE)]


def _large_number_faults(root: str, config: Settings) -> list[SettingFault]:
    if not _LARGE_INTEGER.search(config.model_dump_json()):
        return []
    return [
        SettingFault(path, too_large_message(MAX_INTEGER, value), FaultCode.OVERSIZED_VALUE)
        for path, value in _integers_by_path(config.model_dump(), f"{root}.")
        if not path.endswith("seed") and value > MAX_INTEGER
    ]


def _integers_by_path(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, int]]:
    """Yield every integer with its path; integers in lists have the position as the last part."""
    for path, value in leaves(settings, prefix):
        if isinstance(value, list | tuple):
            yield from _integers_by_path({str(place): item for place, item in enumerate(value)}, f"{path}.")
        elif isinstance(value, int):
            yield path, value


def _confusion_remark(root: str, name: Any) -> str:
    """Return a remark if a task was named as a model or a model as a task; empty otherwise."""
    other_kind: catalog.Kind = "tasks" if root == "model" else "models"
    return f". {name!r} is a {other_kind.removesuffix('s')}" if name in catalog.names(other_kind) else ""


def setting_faults(
    config: type[BaseModel], parent_path: tuple[str, ...], error: ValidationError
) -> list[SettingFault]:
    """Return one fault for each field of a pydantic error, with messages of haltsweep.

    Args:
        config: Class that parses the settings.
        parent_path: Path of the settings.
        error: Error of pydantic; a field of several types has one error for each type.
    """
    faults: dict[str, SettingFault] = {}
    for details in error.errors(include_url=False):
        fault = _setting_fault(config, parent_path, details)
        first_fault = faults.setdefault(fault.path, fault)
        if fault.message != first_fault.message:
            earlier_requirement = first_fault.message.partition(", got ")[0]
            message = f"{earlier_requirement}, or {fault.message.removeprefix('must ')}"
            faults[fault.path] = replace(fault, message=message)
    return list(faults.values())


def _setting_fault(
    config: type[BaseModel], parent_path: tuple[str, ...], error: ErrorDetails
) -> SettingFault:
    location, value, message = error["loc"], error["input"], error["msg"]
    if location and get_origin(_type_at(config, location[:-1])) in {Union, UnionType}:
        location = location[:-1]  # the last part is pydantic's name of one type of the field
    path = ".".join([*parent_path, *map(str, location)])
    match error["type"]:
        case "extra_forbidden":
            fields = _fields_at(config, location[:-1])
            unknown_field_text = f"no field {path}. {hint(str(location[-1]), fields)}"
            return SettingFault(path, RETIRED.get(path, unknown_field_text), FaultCode.UNKNOWN_FIELD)
        case "missing":
            return SettingFault(path, "is required", FaultCode.MISSING_FIELD)
        case "value_error":
            return SettingFault(path, message.removeprefix("Value error, "))
        case kind if kind in _EXPECTED_VALUES:
            expected = _EXPECTED_VALUES[kind].format(**error.get("ctx", {}))
            return SettingFault(path, f"must be {expected}, got {format_value(value)}")
        case "literal_error":
            suggestion = nearest(value, _QUOTED_TEXT.findall(message)) if isinstance(value, str) else None
            question = f". Did you mean {suggestion!r}?" if suggestion is not None else ""
            return SettingFault(path, f"{_fault_message(message)}, got {format_value(value)}{question}")
        case _:
            return SettingFault(path, f"{_fault_message(message)}, got {format_value(value)}")


def _fault_message(message: str) -> str:
    return message.replace("Input should", "must")


def _config_class(root: str, raw: Mapping[str, Any]) -> type[BaseModel]:
    if root == "train":
        return TrainConfig
    return catalog.config_class("tasks" if root == "task" else "models", raw["name"])


def _fields_at(config: type[BaseModel], location: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the names of the fields at `location` inside `config`; none if it is not a mapping of fields."""
    kind = _type_at(config, location)
    return tuple(kind.model_fields) if _is_model(kind) else ()


def _type_at(config: type[BaseModel], location: tuple[str | int, ...]) -> Any:
    """Return the type of the field at `location` inside `config`; None if it is unknown."""
    kind: Any = config
    for key in location:
        field = kind.model_fields.get(str(key)) if _is_model(kind) else None
        kind = None if field is None else bare_type(field.annotation)
    return kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def field_names(root: str, name: str) -> frozenset[str]:
    """Return the top-level fields of the task or model called `name`; raise `BadName` if it is unknown."""
    return frozenset(_config_class(root, {"name": name}).model_fields)


def differences(
    old_values: Mapping[str, Any], new_values: Mapping[str, Any], prefix: str = ""
) -> tuple[Change, ...]:
    """Return every field that differs; a missing field counts as null.

    If only one side has a mapping, the mapping counts as one field.
    """
    changes: list[Change] = []
    for key in dict.fromkeys([*old_values, *new_values]):
        old, new = old_values.get(key, MISSING), new_values.get(key, MISSING)
        path = f"{prefix}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changes += differences(old, new, f"{path}.")
        elif type(old) is not type(new) or old != new:
            changes.append(Change(path, _missing_as_null(old), _missing_as_null(new)))
    return tuple(changes)


def undeclared_changes(changes: Iterable[Change], declared_names: Iterable[str]) -> tuple[Change, ...]:
    """Return the changes that overlap with none of the `declared_names` paths.

    A changed name declares all changes of its part.
    """
    paths = [path.removesuffix(".name") if path.count(".") == 1 else path for path in declared_names]
    return tuple(change for change in changes if not any(overlap(change.path, path) for path in paths))


def _missing_as_null(value: Any) -> Any:
    return None if value is MISSING else value
