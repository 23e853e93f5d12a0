"""Places for ledgers: a file of its own, a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ledger.store import Ledger
from tests.support.stores.postgres import postgres_url, running_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """Socket folder of a running server."""
    with running_server() as folder:
        yield folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a ledger that does not exist yet, in a folder with an ugly name."""
    folder = tmp_path / "with space 'and' quote"
    folder.mkdir()
    return f"sqlite:///{folder / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a ledger that does not exist yet, in a file and on a server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        with postgres_url(request) as url:
            yield url


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url, "sweep", create=True) as opened:
        yield opened
