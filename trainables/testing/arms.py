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

    A switch is set to its other value, a choice to each of its other words, and an optional part to null. A
    marked field is set to the other values of its mark.
    """
    raw = config.model_dump(mode="json")
    found = {BASE: raw}
    for path, value in changes(config):
        if fits(arm := replace_fields(raw, path, value), shape):
            found[named(path, value)] = arm
    return found


def named(path: Path, value: Any) -> str:
    """Return the label of a change, e.g. `halt.unit=token`."""
    return f"{'.'.join(path)}={value}"


def changes(config: Settings) -> Iterator[tuple[Path, Any]]:
    """Yield paths and values of all possible changes, including those that conflict with other fields."""
    for name, field in type(config).model_fields.items():
        now, marked = getattr(config, name), mark(type(config), name)
        others = _choices(field.annotation) if marked is None else [marked.value, *marked.others]
        for value in dict.fromkeys(others):
            if value != now and name != EXIT:
                yield (name,), value
        if isinstance(now, Settings):
            yield from (((name, *path), value) for path, value in changes(now))


def replace_fields(raw: Raw, path: Path, value: Any) -> Raw:
    """Return a copy with `value` at `path`."""
    first, *rest = path
    return raw | {first: replace_fields(raw[first], tuple(rest), value) if rest else value}


def fits(raw: Mapping[str, Any], shape: TaskShape) -> bool:
    """Return whether these settings are valid and can do a task of `shape`."""
    try:
        return misfit(model_config(raw), shape) is None
    except ValidationError:
        return False


def having(raw: Mapping[str, Any], **more: Any) -> Raw:
    """Return `raw` with those fields of `more` that its model has as plain values."""
    fields = catalog.config_class("models", raw["name"]).model_fields
    plain = {name for name in fields if not isinstance(raw.get(name), dict)}
    return dict(raw) | {field: value for field, value in more.items() if field in plain}


def mark(config: type[Settings], field: str) -> Small | None:
    """Return the mark of a field: its own, or that of the nearest base class."""
    above = (each for each in config.__mro__ if issubclass(each, BaseModel) and field in each.model_fields)
    marks = (found for each in above for found in reversed(each.model_fields[field].metadata))
    return next((found for found in marks if isinstance(found, Small)), None)


def _small(config: type[Settings]) -> Raw:
    found: Raw = {}
    for name, field in config.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if (small := mark(config, name)) is not None:
            found[name] = small.value
        elif isinstance(default, Settings):
            found[name] = default.model_dump(mode="json") | _small(type(default))
    return found


def _choices(kind: Any) -> list[Any]:
    """Return all values of a type that can be listed, including those of the members of a union."""
    if kind is bool:
        return [False, True]
    if kind is type(None):
        return [None]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return [value for part in get_args(kind) for value in _choices(part)]
    return []
