"""One writer of projections at a time, on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.disk import remedy
from orchestrator.errors import StoreError
from orchestrator.regular_files import found_instead
from orchestrator.tracking.state import STATE
from trainables.atomic import clear_unfinished
from trainables.locks import locked


@contextmanager
def projection_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of the sweep folder `root`. Raises StoreError if another keeps it for `wait_s`."""

    def refuse(holder: str) -> None:
        raise StoreError(
            f"one process at a time may write MLflow and Parquet of {root.name!r}, and {holder} is doing it; "
            "it brings them up to date by itself, so wait for it, or stop it and try again"
        )

    file = root / ".tracking.lock"
    lock = locked(file, wait_s, refuse)
    try:
        lock.__enter__()
    except OSError as error:
        raise _not_made(file, error) from error
    try:
        clear_unfinished(root / STATE)  # of a writer that was killed
        yield
    finally:
        lock.__exit__(None, None, None)


def _not_made(file: Path, error: OSError) -> StoreError:
    kind = "a symbolic link" if file.is_symlink() else found_instead(file)
    if kind:
        return StoreError(f"the lock {str(file)!r} must be a file, and is {kind}; delete it")
    return StoreError(f"the lock {str(file)!r} could not be made: {error}; {remedy(error)}")
