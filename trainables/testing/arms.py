"""Small versions of a model, found by its fields: a base, and all that differ from it in one choice."""

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
"""The field whose values give the same results; it makes no arms."""
Raw = dict[str, Any]
Path = tuple[str, ...]
"""Names of fields, from the outermost in."""


def base(name: str, settings: Mapping[str, Any]) -> Settings:
    """The small version of the model `name`: fields as they are marked (`trainables.settings.Small`).

    `settings` change it. Raises `extensions.BadName` and, for settings that cannot be, ValueError.
    """
    return model_config({"name": name} | _small(catalog.config_class("models", name)) | dict(settings))


def variations(config: Settings, shape: TaskShape) -> dict[str, Raw]:
    """Settings of `config` and of all that differ from it in one field and can do a task of `shape`.

    These are the other value of each switch, the other words of each choice, null where a part may be left
    out; of a field that is marked, the other values of its mark.
    """
    raw = config.model_dump(mode="json")
    found = {BASE: raw}
    for path, value in changes(config):
        if fits(arm := changed(raw, path, value), shape):
            found[named(path, value)] = arm
    return found


def named(path: Path, value: Any) -> str:
    """Label of a change, e.g. `halt.unit=token`."""
    return f"{'.'.join(path)}={value}"


def changes(config: Settings) -> Iterator[tuple[Path, Any]]:
    """Paths and values of all that can be otherwise, whether or not that fits the rest."""
    for name, field in type(config).model_fields.items():
        now, marked = getattr(config, name), mark(type(config), name)
        others = _choices(field.annotation) if marked is None else [marked.value, *marked.others]
        for value in dict.fromkeys(others):
            if value != now and name != EXIT:
                yield (name,), value
        if isinstance(now, Settings):
            yield from (((name, *path), value) for path, value in changes(now))


def changed(raw: Raw, path: Path, value: Any) -> Raw:
    """A copy with `value` at `path`."""
    first, *rest = path
    return raw | {first: changed(raw[first], tuple(rest), value) if rest else value}


def fits(raw: Mapping[str, Any], shape: TaskShape) -> bool:
    """Whether these settings can be, and can do a task of `shape`."""
    try:
        return misfit(model_config(raw), shape) is None
    except ValidationError:
        return False


def having(raw: Mapping[str, Any], **more: Any) -> Raw:
    """`raw` with those fields of `more` that its model has, and that hold no settings of their own there."""
    fields = catalog.config_class("models", raw["name"]).model_fields
    plain = {name for name in fields if not isinstance(raw.get(name), dict)}
    return dict(raw) | {field: value for field, value in more.items() if field in plain}


def mark(config: type[Settings], field: str) -> Small | None:
    """The mark of a field: its own, or that of the nearest class above."""
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
    """What a field of this type can be, where that can be listed; of a union what its parts can be."""
    if kind is bool:
        return [False, True]
    if kind is type(None):
        return [None]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return [value for part in get_args(kind) for value in _choices(part)]
    return []
