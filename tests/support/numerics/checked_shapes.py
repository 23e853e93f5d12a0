"""Check shapes and types of calls of layers by jaxtyping and beartype, on demand."""

from collections.abc import Callable
from inspect import signature
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from jaxtyping import config, install_import_hook

CHECKED = ("trainables.layers", "trainables.models", "trainables.heads", "trainables.types")


class CheckSwitch:
    """Exchanges the code of a function with code that calls a checked copy of the function.

    Unchecked calls therefore cost nothing. A wrapper that decides at every call takes a tenth of the time
    of all contracts of models.
    """

    def __init__(self, function: FunctionType, decorate: Callable[[Any], Any]) -> None:
        self._function, self._decorate = function, decorate
        self._plain, self._checking = function.__code__, None

    def turn(self, *, on: bool) -> None:
        """Turn checks of the function's calls on or off."""
        if on and self._checking is None:
            plain_function = self._function
            # pydantic reads the parameters of validators, which the exchanged code no longer has.
            plain_function.__signature__ = signature(plain_function)  # type: ignore[attr-defined]
            copy = FunctionType(
                self._plain,
                plain_function.__globals__,
                plain_function.__name__,
                plain_function.__defaults__,
                plain_function.__closure__,
            )
            for name in ("__kwdefaults__", "__annotations__", "__qualname__", "__module__", "__doc__"):
                setattr(copy, name, getattr(plain_function, name))
            self._checking = code_calling(self._decorate(copy), self._plain)
        self._function.__code__ = self._checking if on else self._plain


def code_calling(function: Callable[..., Any], signature_code: CodeType) -> CodeType:
    """Return code that calls `function` and has the free variables of `signature_code`, which it replaces."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        target: Any = "placeholder"
        return target(*arguments, **keywords)

    code = call.__code__
    constants = tuple(function if constant == "placeholder" else constant for constant in code.co_consts)
    return code.replace(
        co_consts=constants, co_freevars=signature_code.co_freevars, co_name=signature_code.co_name
    )


_switches: list[CheckSwitch] = []


def install() -> None:
    """Make calls in modules imported from now on checkable; `check` turns the checks on.

    Nested functions stay unchecked, but the functions that they call are checked. Otherwise every call of the
    outer function would compile three checked functions, which took two thirds of a training step.
    """
    jaxtyped = jaxtyping.jaxtyped

    def decorate_on_demand(*, typechecker: Any) -> Callable[[Any], Any]:
        decorate = jaxtyped(typechecker=typechecker)

        def replace(function: Any) -> Any:
            if "<locals>" in function.__qualname__:
                return function
            if not isinstance(function, FunctionType):
                return decorate(function)
            switch = CheckSwitch(function, decorate)
            _switches.append(switch)
            if _is_on():
                switch.turn(on=True)
            return function

        return replace

    jaxtyping.jaxtyped = decorate_on_demand  # the import hook calls this in the hooked modules
    install_import_hook(CHECKED, "beartype.beartype")
    config.update("jaxtyping_disable", value=True)


def check(*, on: bool) -> None:
    """Turn the checks on or off."""
    if on == _is_on():
        return
    config.update("jaxtyping_disable", not on)
    for switch in _switches:
        switch.turn(on=on)


def _is_on() -> bool:
    return not config.jaxtyping_disable
