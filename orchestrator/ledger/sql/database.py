"""Run transactions on a database, with retries during outages and a check that its file is unchanged."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import StoreError
from orchestrator.files.regular_files import file_identity
from orchestrator.ledger.sql.engine import begin_transaction, database_file, explain_error
from orchestrator.ledger.sql.outage import OnOutage, Patience, is_temporary

T = TypeVar("T")


class LedgerReplaced(StoreError):
    """The ledger's file was deleted, moved or replaced since it was opened."""


class Database:
    """Database of one ledger; threads may share it."""

    def __init__(self, engine: Engine, patience_s: float = 0.0, on_outage: OnOutage | None = None) -> None:
        self._engine = engine
        self._patience = Patience(patience_s, on_outage)
        sqlite = engine.dialect.name == "sqlite"
        self._file = database_file(engine.url) if sqlite else None
        self._identity: tuple[int, int] | None = None

    @property
    def engine(self) -> Engine:
        """Return the SQLAlchemy engine."""
        return self._engine

    def run(self, work: Callable[[Connection], T], *, write: bool, patient: bool = True) -> T:
        """Return the result of `work`, run in a separate transaction that is committed.

        After a temporary failure, `work` runs again on a new connection, until the ledger's patience ends.
        The earlier transaction may have been committed, so `work` must check for that.

        Args:
            work: Function of the connection.
            write: Whether the transaction writes.
            patient: Whether to retry after a temporary failure.

        Raises:
            StoreError: If the database fails; the message states what to do.
        """
        tries = 0
        while True:
            self._require_same_file()
            try:
                with begin_transaction(self._engine, write=write) as connection:
                    result = work(connection)
            except DBAPIError as error:
                if not is_temporary(error):
                    raise explain_error(error, self._engine.url) from error
                self._patience.record_failure(str(error.orig))
                if not (patient and self._patience.wait(tries)):
                    raise explain_error(error, self._engine.url, self._patience.began_at) from error
                tries += 1
            else:
                self._patience.record_success()
                if self._identity is None and self._file is not None:
                    self._identity = file_identity(self._file)
                return result

    def close(self) -> None:
        """Close the connections, and end all waiting for the database."""
        self._patience.end()
        self._engine.dispose()

    def _require_same_file(self) -> None:
        # SQLite would continue to write to a deleted file.
        if self._file is None or self._identity is None:
            return
        identity = file_identity(self._file)
        if identity == self._identity:
            return
        fault = "has been deleted or moved" if identity is None else "has been replaced by another file"
        raise LedgerReplaced(
            f"the ledger {str(self._file)!r} must not be moved while it is used, but it {fault}; restore "
            "it, e.g. from a backup, then `haltsweep resume`"
        )
