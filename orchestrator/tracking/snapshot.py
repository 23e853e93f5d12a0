"""Copies of SQLite databases, to be looked at: nothing is written to, or beside, the original."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def snapshot(file: Path) -> Iterator[Path]:
    """A copy of the database as it is at this moment. Raises OSError, sqlite3.Error."""
    with TemporaryDirectory(prefix="haltsweep-verify-") as folder:
        copy = Path(folder) / file.name
        if os.access(file.parent, os.W_OK):
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        else:
            # SQLite must make files beside a database to read it; where nobody can write, nobody does.
            for each in (file, file.with_name(f"{file.name}-wal")):
                if each.exists():
                    shutil.copyfile(each, copy.with_name(each.name))
        yield copy
