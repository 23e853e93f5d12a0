"""Flush the files that training code has left open.

An interpreter flushes such files when it exits. A trial ends without an exit of its interpreter.
"""

import gc
import io
from contextlib import suppress

WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def flush_open_files() -> None:
    """Write the buffered content of all open files of this process; ignore files that cannot be written."""
    for candidate in gc.get_objects():
        # `isinstance` could call code of proxy objects.
        if type(candidate) in WRITERS and not candidate.closed:
            with suppress(OSError, ValueError):
                candidate.flush()
