"""Databases for ledgers: a SQLite file and a PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.ledger.sql.engine import connect, transaction
from orchestrator.ledger.store import Ledger
from tests.support.stores.postgres import postgres_url, running_server


def execute(url: str, *statements: str) -> None:
    """Run statements of SQL in one transaction."""
    engine = connect(url)
    with transaction(engine, write=True) as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """Start a PostgreSQL server; yield its socket folder."""
    with running_server() as folder:
        yield folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a new ledger in a folder with spaces and quotes in its name."""
    folder = tmp_path / "with space 'and' quote"
    folder.mkdir()
    return f"sqlite:///{folder / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a new ledger, in a SQLite file and on a PostgreSQL server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        with postgres_url(request) as url:
            yield url


@pytest.fixture
def store(any_url: str) -> Iterator[Ledger]:
    with Ledger.open(any_url, "sweep", create=True) as open_ledger:
        yield open_ledger


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url, "sweep", create=True) as open_ledger:
        yield open_ledger
