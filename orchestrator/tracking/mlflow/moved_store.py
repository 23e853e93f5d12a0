"""An MLflow in a file keeps its artifacts beside it, wherever both were moved or copied to.

MLflow writes the place of artifacts into its database, from the root, of every experiment and run. Of a copy
these are the files of the original: reports of the one would replace those of the other, and a store that was
moved would make its old folder again.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.files.sqlite_files import file_of

_WAIT_S = 30.0
_DEFAULT = "0"
"""MLflow's own experiment, which it makes with the database: where that lies, the database was made."""
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"))


def follow_move(uri: str, artifacts: Path) -> None:
    """Let experiments and runs of the database beside `artifacts` have their files there.

    Those that other folders of sweeps keep in it, and stores that are elsewhere, stay as they are. Raises
    sqlite3.Error.
    """
    file, here = file_of(uri), artifacts.resolve()
    if file is None or not file.is_file() or file.resolve().parent != here.parent:
        return
    with closing(sqlite3.connect(file, timeout=_WAIT_S)) as connection:
        before = _made_for(connection)
        if before is None or before.name != here.name or _same(before, here):
            return
        old, new = f"{before.as_uri()}/", f"{here.as_uri()}/"
        with connection:
            for table, column in _COLUMNS:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608  # nosec B608
                    f"WHERE substr({column}, 1, ?) = ?",
                    (new, len(old) + 1, len(old), old),
                )


def _made_for(connection: sqlite3.Connection) -> Path | None:
    """The folder of artifacts with which the database was made."""
    query = "SELECT artifact_location FROM experiments WHERE experiment_id = ?"
    try:
        found = connection.execute(query, (_DEFAULT,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # of no MLflow, or not yet
            return None
        raise
    parts = urlsplit(found[0] if found is not None and found[0] else "")
    return Path(unquote(parts.path)).parent if parts.scheme == "file" else None


def _same(one: Path, other: Path) -> bool:
    """Whether both names lead to one folder, or would."""
    try:
        return one.samefile(other)
    except OSError:
        return one.parent.is_dir() and one.parent.samefile(other.parent)
