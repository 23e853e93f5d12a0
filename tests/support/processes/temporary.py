"""A folder for temporary files whose path is short enough for Ray's sockets."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_folder() -> Iterator[Path]:
    """Create a folder with a path of nine characters: a socket may have 107, and Ray adds up to 98."""
    while True:
        folder = Path("/tmp") / secrets.token_hex(2)
        try:
            folder.mkdir(mode=0o700)
            break
        except FileExistsError:
            continue
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
