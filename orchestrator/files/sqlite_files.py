"""Convert between SQLite files and absolute or relative URLs, and copy databases for reading.

A URL is `sqlite:///PATH`, in which `%`, `?` and `#` of the path are written as `%25`, `%3F` and `%23`, since
they have another meaning in a URL. Special SQLite names (`:memory:`, `file:...?uri=true`) and all other URLs
are left unchanged.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

SQLITE = "sqlite:///"
_BESIDE = f"{SQLITE}../"
_OF_SERVER = re.compile(r"sqlite(\+\w+)?:///[^/?]*:[^/?]*@", re.IGNORECASE)


def sqlite_url(file: Path) -> str:
    """Return the URL of a file."""
    return f"{SQLITE}{_quote_path(file)}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL; None if the URL has none."""
    text = url.removeprefix(SQLITE).partition("?")[0]
    if not url.startswith(SQLITE) or not text or text.startswith((":", "file:")):
        return None
    return Path(unquote(text))


def url_for_mlflow(url: str) -> str:
    """Return the URL for MLflow, which would not decode `%3F` in a `sqlite:///` URL."""
    return url.replace(SQLITE, "sqlite+pysqlite:///", 1) if url.startswith(SQLITE) and "%" in url else url


def _quote_path(path: Path) -> str:
    return re.sub("[%?#]", lambda match: f"%{ord(match[0]):02X}", str(path))


def has_password(url: str) -> bool:
    """Return whether the path begins with `user:password@`, as in URLs of servers.

    A folder with such a name can be given as an absolute path.
    """
    return _OF_SERVER.match(url) is not None


def to_absolute_url(url: str) -> str:
    """Return the URL with the absolute path of its file."""
    file = sqlite_file(url)
    return url if file is None else f"{sqlite_url(file.resolve())}{_parameters(url)}"


def to_relative_url(url: str, folder: Path) -> str:
    """Return the URL relative to `folder` if the file is in its parent folder or below; else `url`.

    Folder and file may then be moved or copied together.
    """
    file, parent_folder = sqlite_file(url), folder.resolve().parent
    if file is None or not file.is_absolute() or not file.is_relative_to(parent_folder):
        return url
    return f"{_BESIDE}{_quote_path(file.relative_to(parent_folder))}{_parameters(url)}"


def from_relative_url(url: str, folder: Path) -> str:
    """Return the URL that was given to `to_relative_url`, for the present location of `folder`."""
    parent_url = f"{sqlite_url(folder.resolve().parent)}/"
    return url.replace(_BESIDE, parent_url, 1) if url.startswith(_BESIDE) else url


def _parameters(url: str) -> str:
    return "".join(url.partition("?")[1:])


def why_no_database(file: Path) -> str:
    """Return why there is no database at `file`: "is not" or "is empty". Return "" if there is one.

    A process that creates a database may be killed before its first table exists. A file that is not a
    database counts as one here, and opening it raises the error. Nothing is written.
    """
    import sqlite3

    if not file.exists():
        return "is not"
    if not file.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:  # opening the database reports the error
        return ""
    return "" if tables else "is empty"


@contextmanager
def copy_database(file: Path) -> Iterator[Path]:
    """Yield a copy of the current state of the database, for reading.

    No file is written to the original or to its folder.

    Raises:
        OSError, sqlite3.Error: If the database cannot be copied.
    """
    import sqlite3

    with TemporaryDirectory(prefix="haltsweep-verify-") as folder:
        copy = Path(folder) / file.name
        if os.access(file.parent, os.W_OK):
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        else:
            # SQLite must create files next to a database to read it. No process of this user can write to
            # this folder, so the files can be copied.
            for path in (file, file.with_name(f"{file.name}-wal")):
                if path.exists():
                    shutil.copyfile(path, copy.with_name(path.name))
        yield copy
