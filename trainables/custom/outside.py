"""Import the trainable that a spec names: a class with the Workload protocol, a plain function, or a script.

A module may declare more about its trainables in one mapping named `haltsweep`; every key is optional:

    haltsweep = {
        "config": Config,        # pydantic model or dataclass of the settings
        "metrics": {...},        # properties of the reported quantities, see `trainables.metrics`
        "build": build,          # build(settings): the trained nn.Module, for ablation checks
        "example": example,      # example(settings): arguments of one forward pass of that module
        "evaluate": evaluate,    # evaluate(settings, folder): metrics of the files of a trial in `folder`
        "several_gpus": True,    # one trial uses all GPUs that `resources.gpus` reserves for it
    }

A function or class may have a separate attribute `haltsweep`, which replaces that of its module. Other names
of the module have no meaning.
"""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from trainables.custom.extensions import BadName, describe_error, import_named, shadowed_file_hint
from trainables.custom.function import Evaluate, Evaluation, FunctionWorkload
from trainables.custom.script import Script, find_script
from trainables.custom.source_files import script_command
from trainables.metrics import Metric, parse_metrics
from trainables.protocol import Job, Workload

DECLARATION_NAME: Final = "haltsweep"
"""Name of the mapping that declares more about the trainables of a module."""
METHODS = ("advance", "save", "restore", "close")


@dataclass(frozen=True, slots=True)
class Trainable:
    """A custom trainable and its declarations."""

    path: str
    """`module:name`, or the path of a script."""
    workload: Callable[[Job], Workload]
    config: type[BaseModel] | None = None
    metrics: tuple[Metric, ...] = ()
    build: Callable[[Mapping[str, Any]], Any] | None = None
    example: Callable[[Mapping[str, Any]], Any] | None = None
    evaluate: Evaluate | None = None
    several_gpus: bool = False
    """Whether one trial uses all GPUs that are reserved for it, instead of only the first."""


def _require_syntax(script: Path) -> None:
    try:
        ast.parse(script.read_bytes())
    except SyntaxError as error:
        place = f"{script.name}:{error.lineno}"
        raise ValueError(f"a script must be Python code, but {place} has an error: {error.msg}") from error
    except ValueError as error:
        raise ValueError(f"a script must be Python code, but {script.name} is not: {error}") from error


def load(path: str) -> Trainable:
    """Return the trainable at `module:name`, or in a script.

    Args:
        path: `module:name`, or the path of a script, which ends with `.py`, and its first arguments.

    Raises:
        ValueError: There is no usable trainable; the message is one sentence.
    """
    if (command := script_command(path)) is not None:
        file, first_arguments = command
        _require_syntax(find_script(file))
        return Trainable(path, partial(FunctionWorkload, Script(find_script(file), first_arguments)))
    module_name, _, name = path.partition(":")
    try:
        module = import_named(module_name, "a trainable's module", with_siblings=True)
    except BadName as error:
        raise ValueError(str(error)) from error
    try:
        target: Any = module
        for part in name.split("."):
            target = getattr(target, part)
    except AttributeError:
        names = _public_names(module)
        hint = "".join(
            f"Did you mean {similar_name!r}? " for similar_name in get_close_matches(name, names, n=1)
        )
        names_in_file = ", ".join(names) or "no class and no function"
        message = f"{module_name} has no {name}. {hint}It has {names_in_file}{shadowed_file_hint(module)}"
        raise ValueError(message) from None
    if not callable(target):
        raise ValueError(  # noqa: TRY004 - a fault of a spec
            f"must be a class or a function, got {type(target).__name__} at {path}"
        )

    declaration = _find_declaration(target, module, path)
    functions = {key: declaration.get(key) for key in ("build", "example", "evaluate")}
    for key, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(f"{key} of {path} must be a function, got {type(function).__name__}")
    if functions["evaluate"] is not None:
        _check_evaluate(functions["evaluate"], path)
    several_gpus = declaration.get("several_gpus", False)
    if not isinstance(several_gpus, bool):
        raise ValueError(  # noqa: TRY004 - a fault of a spec
            f"several_gpus of {path} must be True or False, got {several_gpus!r}"
        )
    return Trainable(
        path=path,
        workload=_workload(target, path, functions["evaluate"]),
        config=_config(declaration.get("config"), path),
        metrics=parse_metrics(declaration.get("metrics", {})),
        several_gpus=several_gpus,
        **functions,
    )


def config_admits(settings: Mapping[str, Any], path: str) -> bool:
    """Return whether the declared config of `path` accepts `settings`. Raises ValueError as `load`."""
    config = load(path).config
    try:
        if config is not None:
            config.model_validate(settings)
    except Exception:  # a validator of a user may raise anything
        return False
    return True


def _find_declaration(target: Any, module: Any, path: str) -> Mapping[str, Any]:
    """Return the mapping `haltsweep` of `target`, else of its module; empty if neither declares one."""
    declaration = getattr(target, DECLARATION_NAME, getattr(module, DECLARATION_NAME, None))
    if declaration is None or inspect.ismodule(declaration) or callable(declaration):
        return {}
    field_names = [
        field.name for field in dataclasses.fields(Trainable) if field.name not in ("path", "workload")
    ]
    if not isinstance(declaration, Mapping):
        raise ValueError(  # noqa: TRY004 - a fault of a spec
            f"{DECLARATION_NAME} of {path} must be a mapping with some of {', '.join(field_names)}, got "
            f"{declaration!r}; rename it "
            "if it is unrelated to haltsweep"
        )
    for key in declaration:
        if key not in field_names:
            hint = "".join(
                f" Did you mean {similar_name!r}?"
                for similar_name in get_close_matches(str(key), field_names, n=1)
            )
            raise ValueError(
                f"{DECLARATION_NAME} of {path} must have some of {', '.join(field_names)}, got {key!r}.{hint}"
            )
    return declaration


def dropped_fields(raw: Any, parsed: Any, path: str) -> Iterator[str]:
    """Yield the dotted paths of fields, at or below `path`, that are in `raw` but not in `parsed`.

    Positions in a list are parts of a path. A list that was parsed into one of another length is skipped.
    """
    if isinstance(raw, Mapping) and isinstance(parsed, Mapping):
        for key, value in raw.items():
            item_path = f"{path}.{key}" if path else str(key)
            if key in parsed:
                yield from dropped_fields(value, parsed[key], item_path)
            else:
                yield item_path
    elif isinstance(raw, list | tuple) and isinstance(parsed, list | tuple) and len(raw) == len(parsed):
        for position, (raw_item, parsed_item) in enumerate(zip(raw, parsed, strict=True)):
            yield from dropped_fields(raw_item, parsed_item, f"{path}.{position}")


def _public_names(module: Any) -> list[str]:
    public_callables = {
        name: value for name, value in vars(module).items() if callable(value) and name[0] != "_"
    }
    return sorted(
        name
        for name, value in public_callables.items()
        if getattr(value, "__module__", "") == module.__name__
    )


def _config(declared_type: Any, path: str) -> type[BaseModel] | None:
    if declared_type is None or (isinstance(declared_type, type) and issubclass(declared_type, BaseModel)):
        return declared_type
    if isinstance(declared_type, type) and dataclasses.is_dataclass(declared_type):
        return _pydantic_model(declared_type, path)
    raise ValueError(f"config of {path} must be a pydantic model or a dataclass, got {declared_type!r}")


def _pydantic_model(declared_type: Any, path: str) -> type[BaseModel]:
    """Return a pydantic model with the fields of a dataclass; validation also constructs the dataclass."""

    def field_definition(field: "dataclasses.Field[Any]") -> tuple[Any, Any]:
        if field.default_factory is not dataclasses.MISSING:
            return hints[field.name], Field(default_factory=field.default_factory)
        return hints[field.name], ... if field.default is dataclasses.MISSING else field.default

    def construct_dataclass(model: BaseModel) -> BaseModel:
        declared_type(**{name: getattr(model, name) for name in type(model).model_fields})
        return model

    try:
        hints = get_type_hints(declared_type, include_extras=True)
        fields: dict[str, Any] = {
            field.name: field_definition(field) for field in dataclasses.fields(declared_type) if field.init
        }
        return create_model(
            declared_type.__name__,
            __config__=ConfigDict(extra="forbid"),
            __validators__={"checked": model_validator(mode="after")(construct_dataclass)},  # type: ignore[dict-item]
            **fields,
        )
    except Exception as error:  # a type that pydantic cannot validate, or an undefined name
        raise ValueError(
            f"config of {path} must have fields of types that pydantic knows, got {describe_error(error)}"
        ) from error


def _workload(target: Any, path: str, evaluate: Evaluate | None) -> Callable[[Job], Workload]:
    if not isinstance(target, type):
        _check_arguments(target, path)
        make_workload: Callable[[Job], Workload] = partial(FunctionWorkload, target)
    else:
        if missing_methods := [name for name in METHODS if not callable(getattr(target, name, None))]:
            raise ValueError(
                f"{path} must have the methods of trainables.protocol.Workload, "
                f"lacks {', '.join(missing_methods)}"
            )
        _check_class(target, path)
        make_workload = target
    return make_workload if evaluate is None else partial(_phase_workload, make_workload, evaluate)


def _phase_workload(make_training: Callable[[Job], Workload], evaluate: Evaluate, job: Job) -> Workload:
    return Evaluation(evaluate, job) if job.phase == "posthoc" else make_training(job)


def _check_class(target: type, path: str) -> None:
    if inspect.isabstract(target):
        abstract_methods = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        raise ValueError(
            f"{path} must be a class that can be instantiated, but {abstract_methods} is abstract"
        )
    if callable(getattr(target, "finished", None)):
        raise ValueError(  # noqa: TRY004 - a fault of a spec
            f"finished of {path} must be a bool, but is a method, which is always true: write @property "
            "above it"
        )
    _check_call(target, path, f"{target.__name__}(job)", 1)


def _check_arguments(function: Any, path: str) -> None:
    if kind := _kind_of_iterator(function):
        raise ValueError(
            f"{path} must train when it is called, but it returns {kind} without training: write a plain "
            "function that calls trial.report"
        )
    _check_call(function, path, "train(settings, trial)", 2)


def _check_evaluate(function: Evaluate, path: str) -> None:
    subject = f"evaluate of {path}"
    if kind := _kind_of_iterator(function):
        raise ValueError(
            f"{subject} must measure when it is called, but it only returns {kind}: "
            "write a plain function that "
            "returns metrics"
        )
    _check_call(function, subject, "evaluate(settings, folder)", 2)


def _kind_of_iterator(function: Any) -> str:
    """Return which kind of iterator `function` returns, e.g. "a generator"; empty for other functions."""
    iterator_kinds = {
        "a generator": inspect.isgeneratorfunction,
        "a coroutine": inspect.iscoroutinefunction,
        "an asynchronous generator": inspect.isasyncgenfunction,
    }
    matches = (
        kind
        for kind, is_kind in iterator_kinds.items()
        if is_kind(function) or is_kind(type(function).__call__)
    )
    return next(matches, "")


def _check_call(function: Any, path: str, call: str, num_arguments: int) -> None:
    try:
        # Check the wrapper's signature, because a decorator may pass other arguments to the wrapped function.
        inspect.signature(function, follow_wrapped=False).bind(*[object()] * num_arguments)
    except TypeError as error:
        raise ValueError(
            f"{path} cannot be called as {call}: {error}; name a script that "
            "reads its command line by its file, such as train.py"
        ) from error
    except ValueError:
        return  # the callable has no readable signature
