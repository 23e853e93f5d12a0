"""Reduce garbage collection while modules are imported, since imported objects are permanent."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

DEFAULT_THRESHOLDS = gc.get_threshold()
RARE_THRESHOLD = 100_000
"""Number of new objects between two collections.

With the default of 700, collections take a tenth of the time to import PyTorch or MLflow.
"""


def collect_rarely() -> None:
    """Collect garbage rarely; call at the start of a process."""
    gc.set_threshold(RARE_THRESHOLD, *DEFAULT_THRESHOLDS[1:])


def collect_normally() -> None:
    """Restore the default frequency of garbage collection; call before long-running work.

    All objects that exist at the first call are excluded from later collections. Further calls have no
    effect.
    """
    if gc.get_threshold() != DEFAULT_THRESHOLDS:
        gc.freeze()
        gc.set_threshold(*DEFAULT_THRESHOLDS)


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
