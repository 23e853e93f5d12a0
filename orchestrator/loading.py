"""What makes large libraries load faster."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, nobody looks for garbage: what a library makes while it is imported stays.

    To look through all of it again and again is a fifth of the time in which PyTorch and MLflow load.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
