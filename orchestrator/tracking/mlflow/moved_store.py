"""Makes a moved or copied MLflow database use the artifacts beside it.

MLflow stores absolute paths of artifacts. A copied database would overwrite the artifacts of the original,
and a moved one would make its old folder again.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.files.sqlite_files import file_of

_WAIT_S = 30.0
_DEFAULT = "0"
"""Id of the experiment that MLflow makes with the database, whose path tells where that was made."""
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"))


def follow_move(uri: str, artifacts: Path) -> None:
    """Let experiments and runs in the database beside `artifacts` keep their files there.

    Databases elsewhere, and experiments of other folders, stay as they are. Raises sqlite3.Error.
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
    """Return the folder of artifacts with which the database was made."""
    query = "SELECT artifact_location FROM experiments WHERE experiment_id = ?"
    try:
        found = connection.execute(query, (_DEFAULT,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # not MLflow's, or not finished
            return None
        raise
    parts = urlsplit(found[0] if found is not None and found[0] else "")
    return Path(unquote(parts.path)).parent if parts.scheme == "file" else None


def _same(one: Path, other: Path) -> bool:
    """Return whether both paths lead to one folder, or would."""
    try:
        return one.samefile(other)
    except OSError:
        return one.parent.is_dir() and one.parent.samefile(other.parent)
