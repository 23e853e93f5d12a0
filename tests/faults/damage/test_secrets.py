"""A password in a URI option is stored in launch.json (mode 0600) and nowhere else."""

import json
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from sqlalchemy import create_engine, text

from orchestrator.errors import InputError, StoreError
from orchestrator.ledger.sql.engine import require_reachable
from orchestrator.tracking.mlflow.mlflow_runs import TrackingOutage, check_uri, outages
from tests.support.mlflow.mlflow_server import Server
from tests.support.processes.commands import TINY, Answer, Shell, answer, interrupt, wait_for
from tests.support.stores.postgres import postgres
from tests.support.training_code.secrets import MARKER, contains_password, files_with_password, with_password

CLOSED_PORT = "127.0.0.1:1"
"""No server answers at this port."""
LOCAL_TRACKING = "--tracking=sqlite:///mlflow.db"
ODD_PASSWORDS = ["pa@ss", "pa/ss", "pa'ss", "pa#ss", "pa[ss", "pa%ss"]
REFUSED_URLS = [
    ("--tracking", f"ftp://ann:{MARKER}@host"),
    ("--tracking", f"ann:{MARKER}@host:5000"),
    ("--tracking", f"http://ann:{MARKER}@host:port"),
    ("--storage", f"host=h user=ann password={MARKER}"),
    ("--storage", f"postgresql://ann:{MARKER}@host:port/db"),
    ("--storage", f"postgresql://{CLOSED_PORT}/db?user=ann&password={MARKER}"),
    ("--storage", f"postgresql://ann@{CLOSED_PORT}/db?sslpassword={MARKER}"),
    ("--address", f"ray://ann:{MARKER}@{CLOSED_PORT}"),
]


@pytest.mark.parametrize(("option", "url"), REFUSED_URLS)
def test_error_omits_the_password_of_a_refused_url(haltsweep, tmp_path: Path, option: str, url: str) -> None:
    (tmp_path / "quick.yaml").write_text(TINY)
    driver = [] if option == "--address" else ["--driver", "inline"]
    arguments = [option, url] if len(url) % 2 else [f"{option}={url}"]
    answers = haltsweep(
        "launch", "quick.yaml", *arguments, *driver, *([LOCAL_TRACKING] if option == "--storage" else [])
    )
    assert answers.code in (1, 2), answers
    assert not contains_password(answers.out + answers.err)
    assert not list(files_with_password(tmp_path))


@pytest.mark.parametrize("odd_part", ODD_PASSWORDS)
def test_odd_passwords_do_not_leak(odd_part: str) -> None:
    """Libraries that parse such a password differently would print parts of the password."""
    password = f"{odd_part}{MARKER}{odd_part}"
    with pytest.raises((InputError, StoreError)) as storage_error:
        require_reachable(f"postgresql://ann:{password}@{CLOSED_PORT}/db")
    assert not contains_password(str(storage_error.value))
    if set(odd_part) & set("@/ #?["):
        with pytest.raises(InputError) as uri_error:
            check_uri(f"http://ann:{password}@{CLOSED_PORT}")
        assert not contains_password(str(uri_error.value))
    with (
        pytest.raises(TrackingOutage, match=r"http://ann:\*\*\*@h ") as outage_error,
        outages("http://ann:pw@h"),
    ):
        requests.get(f"http://ann:{quote(password, safe='')}@{CLOSED_PORT}", timeout=1)
    assert not contains_password(str(outage_error.value))


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--tracking", f"http://ann:{MARKER}@{CLOSED_PORT}"),
        ("ui", "--no-browser", "--tracking", f"http://ann:{MARKER}@{CLOSED_PORT}"),
        ("status", "tiny", "--storage", f"postgresql://ann:{MARKER}@{CLOSED_PORT}/db"),
        ("ui", "--port", f"http://ann:{MARKER}@{CLOSED_PORT}/with/a/long/path/that/is/broken/into/lines"),
        (f"http://ann:{MARKER}@{CLOSED_PORT}",),
    ],
)
def test_no_command_prints_the_password(haltsweep, arguments: tuple[str, ...]) -> None:
    answers = haltsweep(*arguments)
    assert not contains_password(answers.out + answers.err)


@pytest.mark.slow
def test_sweep_that_loses_its_server_leaks_no_password(tmp_path: Path) -> None:
    """MLflow dies and comes back, and `sync` catches up; both stores have a password."""
    shell = Shell.at(tmp_path, tracked=True)
    server = Server(shell.folder / "mlflow.db", shell.folder / "artifacts")
    server.start()
    with postgres() as database:
        storage, tracking = with_password(database.url()), with_password(server.uri)
        try:
            answers = _launch_and_kill_server(shell, server, storage, tracking)
            server.start()
            for arguments in (("sync", "tiny"), ("status", "tiny", "--json"), ("report", "tiny", "--json")):
                answers += [shell.run(*arguments)]
                assert answers[-1].code == 0, answers[-1]
        finally:
            server.stop()
        assert not contains_password(_dump_tables(database.url()))
    _assert_no_leaks(shell, *answers)


def _launch_and_kill_server(shell: Shell, server: Server, storage: str, tracking: str) -> list[Answer]:
    state = shell.folder / "runs" / "tiny" / "tracking.json"

    def has_recorded(key: str) -> bool:
        try:
            return bool(json.loads(state.read_text())[key])
        except (OSError, ValueError, KeyError):
            return False

    stores = (f"--storage={storage}", "--tracking", tracking)
    changes = ("search=null", "baseline.train.steps=20000", "baseline.train.report_every=20")
    with shell.started("launch", "tiny.yaml", *changes, "--driver", "inline", *stores) as process:
        wait_for(lambda: has_recorded("position"), process)
        server.kill()
        wait_for(lambda: has_recorded("error"), process)
        interrupt(process)
        answers = answer(process)
    assert answers.code == 130, answers
    return [answers]


def _assert_no_leaks(shell: Shell, *answers: Answer) -> None:
    launch_file = shell.folder / "runs" / "tiny" / "launch.json"
    assert stat.S_IMODE(launch_file.stat().st_mode) == 0o600
    assert list(files_with_password(shell.folder, shell.home)) == [launch_file]
    for output in answers:
        assert not contains_password(output.out + output.err), output


def _dump_tables(url: str) -> str:
    """Return all rows of all tables of the database."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        names = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
        tables = [repr(connection.execute(text(f'SELECT * FROM "{name}"')).all()) for (name,) in names]
    engine.dispose()
    assert any("opened" in table for table in tables), "the ledger must be there to be searched"
    return "\n".join(tables)
