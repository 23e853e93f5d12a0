"""Determine the fields of a custom `Config` from its class alone, for settings that have other faults.

For valid settings, the fields that the `Config` retains are more informative: a validator may rename fields
or read other keys. If that is possible, this module reports no unknown fields.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel
from pydantic.fields import FieldInfo

from orchestrator.spec.field_paths import bare

KEEPS_OR_TELLS = frozenset({"allow", "forbid"})
"""Values of `extra` in a `Config` with which unknown keys are not dropped silently."""


def unknown_fields(config: type[BaseModel], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield dotted paths in `settings` that no field of `config` reads and that it drops silently."""
    if _rewrites(config):
        return
    read = {key: field for name, field in config.model_fields.items() for key in _keys(name, field)}
    leaves_out = config.model_config.get("extra") not in KEEPS_OR_TELLS
    for path, value in settings.items():
        key, _, below = str(path).partition(".")
        field = read.get(key)
        if field is None:
            if leaves_out:
                yield str(path)
            continue
        kind, inner = bare(field.annotation), {below: value} if below else value
        if _is_model(kind) and isinstance(inner, Mapping):
            yield from (f"{key}.{each}" for each in unknown_fields(kind, inner))


def declared_fields(config: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of all fields of `config`."""
    for name, field in config.model_fields.items():
        kind = bare(field.annotation)
        if _is_model(kind) and kind.model_fields:
            yield from declared_fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _rewrites(config: type[BaseModel]) -> bool:
    """Return whether `config` may read keys that are not names of fields."""
    validators = config.__pydantic_decorators__.model_validators.values()
    return issubclass(config, RootModel) or any(each.info.mode in {"before", "wrap"} for each in validators)


def _keys(name: str, field: FieldInfo) -> Iterator[str]:
    yield name
    alias = field.validation_alias
    for each in alias.choices if isinstance(alias, AliasChoices) else (alias,):
        first = each.path[0] if isinstance(each, AliasPath) else each
        if isinstance(first, str):
            yield first
