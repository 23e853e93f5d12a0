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
    file, here = sqlite_file(uri), artifacts.resolve()
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
    """Return the artifact folder with which the database was created; None if unknown."""
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
    """Return whether both paths lead to the same folder, even if the folder does not exist."""
    try:
        return one.samefile(other)
    except OSError:
        return one.parent.is_dir() and one.parent.samefile(other.parent)
