"""Validate keywords of a class by its signature, as far as a spec can express their values.

An annotation is evaluated in the module that defines its class. A name that exists only for type checkers (a
`Callable`, a class of the library) cannot be written in YAML. A parameter without an annotation accepts any
value.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from pydantic import ConfigDict, TypeAdapter, ValidationError

_YAML_TYPES = (bool, int, float, str, list, dict, tuple, Mapping, Sequence)
"""Types that YAML can express, besides null."""


def signature_parameters(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function, with annotations evaluated to types.

    Raises:
        ValueError: If the signature is not available.
    """
    try:
        known_parameters = inspect.signature(target).parameters.items()
    except (TypeError, ValueError) as error:
        raise ValueError(f"its parameters cannot be determined: {error}") from error
    return {name: entry.replace(annotation=_annotation(target, entry)) for name, entry in known_parameters}


class MissingAnnotation:
    """Placeholder type for an annotation with names that do not exist at run time."""


def _annotation(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return Any
    function = inspect.unwrap(target.__init__ if inspect.isclass(target) else target)
    holder = types.SimpleNamespace(__annotations__={"given": annotation})
    try:
        return typing.get_type_hints(holder, getattr(function, "__globals__", {}))["given"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return MissingAnnotation


def is_required(parameter: inspect.Parameter) -> bool:
    """Return whether the parameter has no default."""
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def is_expressible(parameter: inspect.Parameter) -> bool:
    """Return whether a spec can express a value of the parameter other than null."""
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and any(
        annotation is Any or (typing.get_origin(annotation) or annotation) in _YAML_TYPES
        for annotation in _union_members(parameter.annotation)
    )


def matches_annotation(value: Any, parameter: inspect.Parameter) -> bool:
    """Return whether `value` has the annotated type; an integer is a float too, but true is not a number."""
    adapter = TypeAdapter[Any](parameter.annotation, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def type_words(parameter: inspect.Parameter) -> str:
    """Return the types that a spec can express as text, such as `None or bool`."""
    none, members = type(None), _union_members(parameter.annotation)
    expressible_types = [
        part for part in members if part is none or (typing.get_origin(part) or part) in _YAML_TYPES
    ]
    return " or ".join(sorted("None" if part is none else _type_name(part) for part in expressible_types))


def _type_name(part: Any) -> str:
    return part.__name__ if inspect.isclass(part) and not typing.get_args(part) else str(part)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union type; for any other type, the type itself."""
    is_union = typing.get_origin(annotation) in (Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)
