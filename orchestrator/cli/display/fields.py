"""Format the fields of a model or task as rows: path, type in words, default, meaning."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from orchestrator.plan.display.format import value_words
from trainables.settings import Settings

TYPE_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}
LIMIT_SIGNS = ((Ge, "ge", ">="), (Gt, "gt", ">"), (Le, "le", "<="), (Lt, "lt", "<"))
NESTED_DEFAULT = "as below"
"""Displayed default of a mapping whose fields have separate rows."""

Row = tuple[str, str, str, str]


def field_rows(config: type[Settings], prefix: str = "") -> Iterator[Row]:
    """Yield one row per field; the fields of nested settings follow the field that contains them."""
    for name, field in config.model_fields.items():
        meaning = " ".join((field.description or "").split())
        yield f"{prefix}{name}", type_text(field), _default_text(field), meaning
        for nested in _nested_settings(field.annotation):
            yield from field_rows(nested, f"{prefix}{name}.")


def type_text(field: FieldInfo) -> str:
    """Return the allowed values in words: `whole number >= 1 or null`, `one of sequence, token`."""
    kinds = _union_members(field.annotation)
    limits = ", ".join(
        f"{sign} {getattr(bound, name)}"
        for bound in field.metadata
        for kind, name, sign in LIMIT_SIGNS
        if isinstance(bound, kind)
    )
    words = " or ".join(_type_words(kind) for kind in kinds if kind is not NoneType)
    type_with_limits = f"{words} {limits}" if limits else words
    return f"{type_with_limits} or null" if NoneType in kinds else type_with_limits


def _type_words(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_words(arguments[0])
    if origin is Literal:
        values = ", ".join(map(value_words, arguments))
        return f"one of {values}" if len(arguments) > 1 else values
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {_type_words(arguments[0])}"
        return f"[{', '.join(map(_type_words, arguments))}]"
    return TYPE_WORDS.get(kind, "mapping")


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return NESTED_DEFAULT if isinstance(value, Settings) else value_words(value)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


def _nested_settings(annotation: Any) -> list[type[Settings]]:
    return [
        kind for kind in _union_members(annotation) if isinstance(kind, type) and issubclass(kind, Settings)
    ]
