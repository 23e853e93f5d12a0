"""Make a moved or copied MLflow database use the artifacts next to it.

MLflow stores absolute paths of artifacts. A copied database would overwrite the artifacts of the original,
and a moved one would recreate its old folder.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.files.sqlite_files import sqlite_file

_WAIT_S = 30.0
_DEFAULT = "0"
"""Id of the experiment that MLflow creates with the database; its path states the original folder."""
_COLUMNS = (("experiments", "artifact_location"), ("runs", "artifact_uri"))


def follow_move(uri: str, artifacts: Path) -> None:
    """Update artifact paths in a database next to `artifacts` after a move. Raise `sqlite3.Error`.

    Databases in other folders, and experiments with other artifact folders, are unchanged.
    """
    file, folder = sqlite_file(uri), artifacts.resolve()
    if file is None or not file.is_file() or file.resolve().parent != folder.parent:
        return
    with closing(sqlite3.connect(file, timeout=_WAIT_S)) as connection:
        original = _original_folder(connection)
        if original is None or original.name != folder.name or _is_same_folder(original, folder):
            return
        old, new = f"{original.as_uri()}/", f"{folder.as_uri()}/"
        with connection:
            for table, column in _COLUMNS:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608  # nosec B608
                    f"WHERE substr({column}, 1, ?) = ?",
                    (new, len(old) + 1, len(old), old),
                )


def _original_folder(connection: sqlite3.Connection) -> Path | None:
    """Return the artifact folder with which the database was created; None if unknown."""
    query = "SELECT artifact_location FROM experiments WHERE experiment_id = ?"
    try:
        row = connection.execute(query, (_DEFAULT,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # not MLflow's, or not finished
            return None
        raise
    parts = urlsplit(row[0] if row is not None and row[0] else "")
    return Path(unquote(parts.path)).parent if parts.scheme == "file" else None


def _is_same_folder(path: Path, second: Path) -> bool:
    """Return whether both paths lead to the same folder, which need not exist."""
    try:
        return path.samefile(second)
    except OSError:
        return path.parent.is_dir() and path.parent.samefile(second.parent)
