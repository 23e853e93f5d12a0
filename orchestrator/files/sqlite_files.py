"""SQLite files: URLs that mean the same file from anywhere, or beside what it belongs to; copies to look at.

A URL is `sqlite:///PATH`, in which `%`, `?` and `#` of the path are written as `%25`, `%3F` and `%23`, since
they mean something else in a URL. Special SQLite names (`:memory:`, `file:...?uri=true`) and all other URLs
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


def url_of(file: Path) -> str:
    """Return the URL of a file."""
    return f"{SQLITE}{_quoted(file)}"


def file_of(url: str) -> Path | None:
    """The file that the URL names; None if it names none."""
    text = url.removeprefix(SQLITE).partition("?")[0]
    if not url.startswith(SQLITE) or not text or text.startswith((":", "file:")):
        return None
    return Path(unquote(text))


def url_for_mlflow(url: str) -> str:
    """Return the URL for MLflow, which would not decode `%3F` in a `sqlite:///` URL."""
    return url.replace(SQLITE, "sqlite+pysqlite:///", 1) if url.startswith(SQLITE) and "%" in url else url


def _quoted(path: Path) -> str:
    return re.sub("[%?#]", lambda found: f"%{ord(found[0]):02X}", str(path))


def has_password(url: str) -> bool:
    """Whether the path begins with `user:password@`, as URLs of servers do, and would be a folder's name.

    A folder that is called so can be given with its path from the root.
    """
    return _OF_SERVER.match(url) is not None


def absolute(url: str) -> str:
    """The URL with the path of its file from the root, whatever the working directory will be."""
    file = file_of(url)
    return url if file is None else f"{url_of(file.resolve())}{_parameters(url)}"


def beside(url: str, folder: Path) -> str:
    """A file beside `folder`, or below: as seen from there, both may be moved or copied together."""
    file, around = file_of(url), folder.resolve().parent
    if file is None or not file.is_absolute() or not file.is_relative_to(around):
        return url
    return f"{_BESIDE}{_quoted(file.relative_to(around))}{_parameters(url)}"


def from_beside(url: str, folder: Path) -> str:
    """What `beside` was given, where `folder` is now."""
    around = f"{url_of(folder.resolve().parent)}/"
    return url.replace(_BESIDE, around, 1) if url.startswith(_BESIDE) else url


def _parameters(url: str) -> str:
    return "".join(url.partition("?")[1:])


def never_made(file: Path) -> str:
    """Why there is no database at `file`: it "is not", or "is empty". The empty text if there is one.

    Whoever makes a database may be killed before its first table is in it. What is no database at all is for
    whoever opens it to tell. Nothing is written.
    """
    import sqlite3

    if not file.exists():
        return "is not"
    if not file.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:  # whoever opens it says what is wrong
        return ""
    return "" if tables else "is empty"


@contextmanager
def snapshot(file: Path) -> Iterator[Path]:
    """A copy of the database as it is at this moment, to be looked at. Raises OSError, sqlite3.Error.

    Nothing is written to, or beside, the original.
    """
    import sqlite3

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
