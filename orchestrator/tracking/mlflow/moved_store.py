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
    """Update artifact paths in a database next to `artifacts` after a move.

    Databases in other folders, and experiments with other artifact folders, are unchanged.

    Raises:
        sqlite3.Error: The database cannot be changed, or has no tables of MLflow.
    """
    file, folder = sqlite_file(uri), artifacts.resolve()
    if file is None or not file.is_file() or file.resolve().parent != folder.parent:
        return
    with closing(sqlite3.connect(file, timeout=_WAIT_S)) as connection, connection:
        query = "SELECT artifact_location FROM experiments WHERE experiment_id = ?"
        ((location,),) = connection.execute(query, (_DEFAULT,)).fetchall() or [("",)]
        original = Path(unquote(urlsplit(location or "").path)).parent
        if original.name != folder.name or original.resolve() == folder:
            return
        old, new = f"{original.as_uri()}/", f"{folder.as_uri()}/"
        for table, column in _COLUMNS:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608  # nosec B608
                f"WHERE substr({column}, 1, ?) = ?",
                (new, len(old) + 1, len(old), old),
            )
