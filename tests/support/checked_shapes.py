"""Shapes and types of calls of layers, checked by jaxtyping and beartype where a test asks for it."""

from collections.abc import Callable
from typing import Any

import jaxtyping
from jaxtyping import config, install_import_hook

CHECKED = ("trainables.layers", "trainables.models", "trainables.heads", "trainables.types")


def install() -> None:
    """Of modules that are imported from now on, calls can be checked; they are once `check` says so.

    A function inside of another is made anew by every call of that, and jaxtyping compiles three more of it
    each time, whether they will be used or not. That took two thirds of the time of a training step, so such
    functions are left as they are: they call what is checked, with what they are called with.
    """
    jaxtyped = jaxtyping.jaxtyped

    def lazily(*, typechecker: Any) -> Callable[[Any], Any]:
        decorate = jaxtyped(typechecker=typechecker)

        def decorated(given: Any) -> Any:
            return given if "<locals>" in given.__qualname__ else decorate(given)

        return decorated

    jaxtyping.jaxtyped = lazily  # what the hook has modules call
    install_import_hook(CHECKED, "beartype.beartype")
    check(on=False)


def check(*, on: bool) -> None:
    """Whether calls from now on are checked."""
    config.update("jaxtyping_disable", not on)
