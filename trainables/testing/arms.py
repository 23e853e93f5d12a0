"""Derive small versions of a model from its fields: a base, and all versions with one other choice."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trainables import catalog
from trainables.assembly import misfit, model_config
from trainables.settings import Settings, Small
from trainables.types import TaskShape

BASE: Final = "small"
EXIT: Final = "early_exit"
"""Field whose values give equal results; it is not varied in arms."""
Raw = dict[str, Any]
Path = tuple[str, ...]
"""Names of fields, from the outermost to the innermost."""


def base(name: str, settings: Mapping[str, Any]) -> Settings:
    """Return the settings of the small version of the model `name`, as marked by `trainables.settings.Small`.

    `settings` override the small values.

    Raises:
        extensions.BadName: `name` is not a usable model.
        ValueError: The settings are invalid.
    """
    return model_config({"name": name} | _small(catalog.config_class("models", name)) | dict(settings))


def variations(config: Settings, shape: TaskShape) -> dict[str, Raw]:
    """Return `config` and all settings that differ from it in one field and can do a task of `shape`.

    Each switch is flipped, each choice is set to each of its other options, and each optional part to null. A
    marked field is set to the other values of its mark.
    """
    raw = config.model_dump(mode="json")
    variations_by_label = {BASE: raw}
    for path, value in possible_changes(config):
        if is_valid_for(arm := with_change(raw, path, value), shape):
            variations_by_label[name_change(path, value)] = arm
    return variations_by_label


def name_change(path: Path, value: Any) -> str:
    """Return the label of a change, e.g. `halt.unit=token`."""
    return f"{'.'.join(path)}={value}"


def possible_changes(config: Settings) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of every change of one field, also if the value conflicts with other fields."""
    for name, field in type(config).model_fields.items():
        value_now, field_mark = getattr(config, name), mark(type(config), name)
        other_values = (
            _choices(field.annotation) if field_mark is None else [field_mark.value, *field_mark.other_values]
        )
        for value in dict.fromkeys(other_values):
            if value != value_now and name != EXIT:
                yield (name,), value
        if isinstance(value_now, Settings):
            yield from (((name, *path), value) for path, value in possible_changes(value_now))


def with_change(raw: Raw, path: Path, value: Any) -> Raw:
    """Return a copy with `value` at `path`."""
    key, *rest = path
    return raw | {key: with_change(raw[key], tuple(rest), value) if rest else value}


def is_valid_for(raw: Mapping[str, Any], shape: TaskShape) -> bool:
    """Return whether `raw` holds valid settings of a model that can do a task of `shape`."""
    try:
        return misfit(model_config(raw), shape) is None
    except ValidationError:
        return False


def with_fields(raw: Mapping[str, Any], **new_values: Any) -> Raw:
    """Return `raw` with `new_values`, but skip fields that the model lacks or whose value is a mapping."""
    fields = catalog.config_class("models", raw["name"]).model_fields
    plain_fields = {name for name in fields if not isinstance(raw.get(name), dict)}
    return dict(raw) | {field: value for field, value in new_values.items() if field in plain_fields}


def mark(config: type[Settings], field: str) -> Small | None:
    """Return the mark of a field: its own, or that of the nearest base class."""
    classes = (
        class_ for class_ in config.__mro__ if issubclass(class_, BaseModel) and field in class_.model_fields
    )
    marks = (field_mark for class_ in classes for field_mark in reversed(class_.model_fields[field].metadata))
    return next((field_mark for field_mark in marks if isinstance(field_mark, Small)), None)


def _small(config: type[Settings]) -> Raw:
    small_values: Raw = {}
    for name, field in config.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if (small_value := mark(config, name)) is not None:
            small_values[name] = small_value.value
        elif isinstance(default, Settings):
            small_values[name] = default.model_dump(mode="json") | _small(type(default))
    return small_values


def _choices(kind: Any) -> list[Any]:
    """Return all values of a type if they can be listed; for a union, the values of its members."""
    if kind is bool:
        return [False, True]
    if kind is type(None):
        return [None]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return [value for part in get_args(kind) for value in _choices(part)]
    return []
