"""Shapes and types of calls of layers, checked by jaxtyping and beartype where a test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from jaxtyping import config, install_import_hook

CHECKED = ("trainables.layers", "trainables.models", "trainables.heads", "trainables.types")


class Switch:
    """Of one function two codes: its own, and one that calls a copy of it with checks.

    What is not checked costs nothing then. A wrapper that only asks whether to check took a tenth of the time
    of all contracts of models.
    """

    def __init__(self, function: FunctionType, decorate: Callable[[Any], Any]) -> None:
        self._function, self._decorate = function, decorate
        self._plain, self._checking = function.__code__, None

    def turn(self, *, on: bool) -> None:
        """Whether calls from now on are checked."""
        if on and self._checking is None:
            plain = self._function
            # pydantic asks for the parameters of validators, and these are no longer those of the code.
            plain.__signature__ = signature(plain)  # type: ignore[attr-defined]
            copy = FunctionType(
                self._plain, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
            )
            for name in ("__kwdefaults__", "__annotations__", "__qualname__", "__module__", "__doc__"):
                setattr(copy, name, getattr(plain, name))
            self._checking = calling(self._decorate(copy), self._plain)
        self._function.__code__ = self._checking if on else self._plain


def calling(other: Callable[..., Any], like: CodeType) -> CodeType:
    """Code that calls `other`, for a function with the code `like`, whose cells it needs to have."""

    def call(*given: Any, **named: Any) -> Any:
        target: Any = "the other"
        return target(*given, **named)

    code = call.__code__
    constants = tuple(other if each == "the other" else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_freevars=like.co_freevars, co_name=like.co_name)


_switches: list[Switch] = []


def install() -> None:
    """Of modules that are imported from now on, calls can be checked; they are once `check` says so.

    A function inside of another is made anew by every call of that, and jaxtyping compiles three more of it
    each time. That took two thirds of the time of a training step, so such functions are left as they are:
    they call what is checked, with what they are called with.
    """
    jaxtyped = jaxtyping.jaxtyped

    def lazily(*, typechecker: Any) -> Callable[[Any], Any]:
        decorate = jaxtyped(typechecker=typechecker)

        def decorated(given: Any) -> Any:
            if "<locals>" in given.__qualname__:
                return given
            if not isinstance(given, FunctionType):
                return decorate(given)
            switch = Switch(given, decorate)
            _switches.append(switch)
            if _checked():
                switch.turn(on=True)
            return given

        return decorated

    jaxtyping.jaxtyped = lazily  # what the hook has modules call
    install_import_hook(CHECKED, "beartype.beartype")
    config.update("jaxtyping_disable", value=True)


def check(*, on: bool) -> None:
    """Whether calls from now on are checked."""
    if on == _checked():
        return
    config.update("jaxtyping_disable", not on)
    for switch in _switches:
        switch.turn(on=on)


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside, calls are not checked: for many that are as one that was."""
    before = _checked()
    check(on=False)
    try:
        yield
    finally:
        check(on=before)


def _checked() -> bool:
    return not config.jaxtyping_disable
