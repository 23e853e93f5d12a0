"""How often Python looks for garbage: seldom while modules are imported, for what they make stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = gc.get_threshold()
SELDOM = 100_000
"""New objects between two looks: with the usual 700 these are a tenth of the import of PyTorch or MLflow."""


def look_seldom() -> None:
    """At the start of a process."""
    gc.set_threshold(SELDOM, *USUAL[1:])


def look_as_usual() -> None:
    """Before what runs for long. What is there by now is not looked at again; once in a process is enough."""
    if gc.get_threshold() != USUAL:
        gc.freeze()
        gc.set_threshold(*USUAL)


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Disable the garbage collector while many lasting objects are created, then restore its state."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
