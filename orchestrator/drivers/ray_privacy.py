"""What Ray is not told. Its head node shows every program that connects to everybody who may ask it."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.redact import redact_arguments


@contextmanager
def redacted_entrypoint() -> Iterator[None]:
    """Inside, Ray takes a command line without passwords for that of this process."""
    from ray._private import utils

    ours: Any = utils
    before = getattr(ours, "get_entrypoint_name", None)
    if before is None:  # a Ray that does not ask
        yield
        return
    ours.get_entrypoint_name = lambda: shlex.join(redact_arguments(sys.argv))
    try:
        yield
    finally:
        ours.get_entrypoint_name = before
