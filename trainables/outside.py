"""Finds what a spec names as its trainable: a class with the Workload protocol, or a plain function.

Beside it, as an attribute of it or of its module, may stand what makes a plan say more:

    Config                      a pydantic model of the settings
    metrics                     what is known of the quantities it reports, see `trainables.metrics`
    build(settings)             the nn.Module that is trained, to prove what arms change
    example(settings)           the arguments of one forward pass of that module, for the same proof
    evaluate(settings, folder)  metrics of what a trial saved in `folder`, read again under other settings
    several_gpus                True where one trial uses all GPUs that `resources.gpus` reserves for it
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from pydantic import BaseModel

from trainables.extensions import BadName, hides, imported
from trainables.function import Evaluate, Evaluation, FunctionWorkload
from trainables.metrics import Metric, declared
from trainables.protocol import Job, Workload

METHODS = ("advance", "save", "restore", "close")


@dataclass(frozen=True, slots=True)
class Trainable:
    """What can run trials, and what is known of it."""

    path: str
    """`module:name`."""
    workload: Callable[[Job], Workload]
    config: type[BaseModel] | None = None
    metrics: tuple[Metric, ...] = ()
    build: Callable[[Mapping[str, Any]], Any] | None = None
    example: Callable[[Mapping[str, Any]], Any] | None = None
    evaluate: Evaluate | None = None
    several_gpus: bool = False
    """Whether one trial uses all GPUs that are reserved for it, and not the first alone."""


def load(path: str) -> Trainable:
    """The trainable at `module:name`. Raises ValueError with one sentence if there is none."""
    module_name, _, name = path.partition(":")
    try:
        module = imported(module_name, "a trainable's module")
    except BadName as error:
        raise ValueError(str(error)) from error
    try:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        names = _names(module)
        meant = "".join(f"Did you mean {near!r}? " for near in get_close_matches(name, names, n=1))
        there = ", ".join(names) or "no class and no function"
        message = f"{module_name} has no {name}. {meant}It has {there}{hides(module)}"
        raise ValueError(message) from None
    if not callable(found):
        raise ValueError(  # noqa: TRY004 - of a spec, not of code
            f"must be a class or a function, got {type(found).__name__} at {path}"
        )

    def beside(attribute: str) -> Any:
        there = getattr(found, attribute, getattr(module, attribute, None))
        return None if inspect.ismodule(there) else there

    functions = {each: beside(each) for each in ("build", "example", "evaluate")}
    for each, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(f"{each} beside {path} must be a function, got {type(function).__name__}")
    several_gpus = False if beside("several_gpus") is None else beside("several_gpus")
    if not isinstance(several_gpus, bool):
        raise ValueError(  # noqa: TRY004 - of a spec, not of code
            f"several_gpus beside {path} must be True or False, got {several_gpus!r}"
        )
    return Trainable(
        path=path,
        workload=_workload(found, path, functions["evaluate"]),
        config=_config(beside("Config"), path),
        metrics=() if beside("metrics") is None else declared(beside("metrics")),
        several_gpus=several_gpus,
        **functions,
    )


def config_admits(settings: Mapping[str, Any], path: str) -> bool:
    """Whether the `Config` of the trainable at `path` accepts `settings`. Raises ValueError as `load`."""
    config = load(path).config
    try:
        if config is not None:
            config.model_validate(settings)
    except Exception:  # a validator of others may raise anything
        return False
    return True


def unkept_fields(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Dotted paths at or below `path` that are in `given` and not in `kept`, which a `Config` made of it.

    In a list a place is a part of the path; where one of another length was made of it nothing is said.
    """
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, value in given.items():
            here = f"{path}.{key}" if path else str(key)
            if key in kept:
                yield from unkept_fields(value, kept[key], here)
            else:
                yield here
    elif isinstance(given, list | tuple) and isinstance(kept, list | tuple) and len(given) == len(kept):
        for place, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from unkept_fields(one, other, f"{path}.{place}")


def _names(module: Any) -> list[str]:
    public = {name: value for name, value in vars(module).items() if callable(value) and name[0] != "_"}
    return sorted(
        name for name, value in public.items() if getattr(value, "__module__", "") == module.__name__
    )


def _config(found: Any, path: str) -> type[BaseModel] | None:
    if found is None or (isinstance(found, type) and issubclass(found, BaseModel)):
        return found
    raise ValueError(
        f"Config beside {path} must be a pydantic model, got {found!r}; give it another name if it is none "
        "of the settings"
    )


def _workload(found: Any, path: str, evaluate: Evaluate | None) -> Callable[[Job], Workload]:
    if not isinstance(found, type):
        _check_arguments(found, path)
        trains: Callable[[Job], Workload] = partial(FunctionWorkload, found)
    else:
        if missing := [name for name in METHODS if not callable(getattr(found, name, None))]:
            raise ValueError(
                f"{path} must have the methods of trainables.protocol.Workload, lacks {', '.join(missing)}"
            )
        _check_class(found, path)
        trains = found
    return trains if evaluate is None else partial(_of_phase, trains, evaluate)


def _of_phase(trains: Callable[[Job], Workload], evaluate: Evaluate, job: Job) -> Workload:
    return Evaluation(evaluate, job) if job.phase == "posthoc" else trains(job)


def _check_class(found: type, path: str) -> None:
    if inspect.isabstract(found):
        lacks = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise ValueError(f"{path} must be a class that can be instantiated, and it leaves {lacks} abstract")
    if callable(getattr(found, "finished", None)):
        raise ValueError(  # noqa: TRY004 - of a spec, not of code
            f"finished of {path} must be a truth value, and it is a method, which always counts as true: "
            "write @property above it"
        )
    _check_call(found, path, f"{found.__name__}(job)", 1)


def _check_arguments(function: Any, path: str) -> None:
    if kind := _kind_of_iterator(function):
        raise ValueError(
            f"{path} must train when it is called, and it only returns {kind}: write a plain function "
            "that calls trial.report"
        )
    _check_call(function, path, "train(settings, trial)", 2)


def check_evaluate(function: Evaluate, path: str) -> None:
    """Of a spec that reads checkpoints again: a function of that name may be there for something else.

    Raises ValueError with one sentence where it cannot be called for that.
    """
    what = f"evaluate beside {path}"
    if kind := _kind_of_iterator(function):
        raise ValueError(
            f"{what} must measure when it is called, and it only returns {kind}: write a plain function that "
            "returns metrics"
        )
    _check_call(function, what, "evaluate(settings, folder)", 2)


def _kind_of_iterator(function: Any) -> str:
    """What `function` returns before anything of it has run; empty if it runs when it is called."""
    kinds = {
        "a generator": inspect.isgeneratorfunction,
        "a coroutine": inspect.iscoroutinefunction,
        "an asynchronous generator": inspect.isasyncgenfunction,
    }
    found = (kind for kind, is_kind in kinds.items() if is_kind(function) or is_kind(type(function).__call__))
    return next(found, "")


def _check_call(called: Any, path: str, call: str, arguments: int) -> None:
    try:
        # The decorator's own arguments: it may pass on others to what it wraps.
        inspect.signature(called, follow_wrapped=False).bind(*[object()] * arguments)
    except TypeError as error:
        raise ValueError(f"{path} must be called as {call}, and it cannot: {error}") from error
    except ValueError:
        return  # it says nothing of its arguments
