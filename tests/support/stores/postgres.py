"""A PostgreSQL server for tests, where its programs and the driver are installed."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

PROGRAM_FOLDER = Path("/usr/lib/postgresql")


@contextmanager
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a database on the server of the test run, and return its URL. Skips if no server can run."""
    server: Path = request.getfixturevalue("postgres_server")
    name = f"test_{uuid4().hex}"
    _run(server, "createdb", "-h", str(server), "-U", "postgres", name)
    yield f"postgresql://postgres@/{name}?host={server}"
    _run(server, "dropdb", "--force", "-h", str(server), "-U", "postgres", name)


@contextmanager
def running_server() -> Iterator[Path]:
    """Start a server on a socket in the returned folder, without network. Skips if it cannot start."""
    with postgres() as server:
        yield server.folder


@contextmanager
def postgres() -> Iterator["Postgres"]:
    """Start a server that a test may kill and start again. Skips if it cannot start."""
    if (reason := missing_requirement()) is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="haltsweep-pg-"))
    if (user := _user()) is not None and os.geteuid() == 0:
        shutil.chown(folder, user)
    server = Postgres(folder)
    try:
        _run(folder, "initdb", "-D", str(server.data), "-U", "postgres", "-A", "trust", "--no-sync")
        server.start()
        yield server
    finally:
        if server.data.exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def missing_requirement() -> str | None:
    """Return the reason why no server can run here; None if one can."""
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "PostgreSQL's programs are not installed"
    if find_spec("psycopg") is None:
        return "psycopg is not installed"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


@dataclass(frozen=True)
class Postgres:
    """A server on a socket in `folder`, without network."""

    folder: Path

    @property
    def data(self) -> Path:
        """Folder of the server's files."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """Id of the server's first process."""
        return int((self.data / "postmaster.pid").read_text().partition("\n")[0])

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database on the server."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        log = str(self.folder / "log")
        _run(
            self.folder, "pg_ctl", "-D", str(self.data), "-o", options, "-l", log, "-t", "300", "-w", "start"
        )

    def stop(self) -> None:
        """Stop all processes at once, as in a crash: connections break, and the next start recovers."""
        _run(self.folder, "pg_ctl", "-D", str(self.data), "-m", "immediate", "stop", check=False)

    def kill(self) -> None:
        """Kill the first process with SIGKILL, and wait until the other processes have ended."""
        family = psutil.Process(self.pid).children(recursive=True)
        os.kill(self.pid, signal.SIGKILL)
        psutil.wait_procs(family, timeout=60)
        # A new server ignores the lock of a dead one unless another process has got the same id.
        with suppress(FileNotFoundError):
            (self.data / "postmaster.pid").unlink()


def _run(folder: Path, program: str, *arguments: str, check: bool = True) -> None:
    path = _program(program)
    assert path is not None
    user = _user() if os.geteuid() == 0 else None
    completed = subprocess.run(
        [path, *arguments],
        user=user,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or completed.returncode == 0, completed.stderr


def _program(name: str) -> str | None:
    folders = [str(folder / "bin") for folder in sorted(PROGRAM_FOLDER.glob("*"))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def _user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None
