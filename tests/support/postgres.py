"""A PostgreSQL of the test's own, where its programs and the driver are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest

INSTALLED = Path("/usr/lib/postgresql")


@contextmanager
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a new database; the server is started once a test run. Skips with the reason if it cannot."""
    server: Path = request.getfixturevalue("postgres_server")
    name = f"test_{uuid4().hex}"
    _run(server, "createdb", "-h", str(server), "-U", "postgres", name)
    yield f"postgresql://postgres@/{name}?host={server}"
    _run(server, "dropdb", "--force", "-h", str(server), "-U", "postgres", name)


@contextmanager
def serving() -> Iterator[Path]:
    """A running server that listens in the folder given, on no network. Skips if it cannot be started."""
    if _program("initdb") is None or _program("pg_ctl") is None:
        pytest.skip("PostgreSQL's programs are not installed")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    if os.geteuid() == 0 and _user() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="haltsweep-pg-"))
    if (user := _user()) is not None and os.geteuid() == 0:
        shutil.chown(folder, user)
    data = folder / "data"
    try:
        _run(folder, "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        _run(folder, "pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
        yield folder
    finally:
        if data.exists():
            _run(folder, "pg_ctl", "-D", str(data), "-m", "immediate", "stop", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, program: str, *arguments: str, check: bool = True) -> None:
    path = _program(program)
    assert path is not None
    user = _user() if os.geteuid() == 0 else None
    done = subprocess.run(
        [path, *arguments],
        user=user,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr


def _program(name: str) -> str | None:
    folders = [str(folder / "bin") for folder in sorted(INSTALLED.glob("*"))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def _user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None
