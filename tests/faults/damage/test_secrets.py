"""A password in any URI option, in every outcome, is in launch.json (0600) and nowhere else."""

import json
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from sqlalchemy import create_engine, text

from orchestrator.errors import InputError, StoreError
from orchestrator.ledger.sql.engine import require_answer
from orchestrator.tracking.mlflow.mlflow_runs import TrackingOutage, check_uri, outages
from tests.support.mlflow.mlflow_server import Server
from tests.support.processes.commands import TINY, Answer, Shell, answer, interrupt, wait_for
from tests.support.stores.postgres import postgres
from tests.support.training_code.secrets import MARKER, contains_password, files_with_password, with_password

NOBODY = "127.0.0.1:1"
"""No server answers at this port."""
SILENT = "--tracking=sqlite:///mlflow.db"
ODD = ["pa@ss", "pa/ss", "pa:ss", "pa'ss", 'pa"ss', "pa ss", "pa#ss", "pa?ss", "pa[ss", "pa%ss", "1/ss"]
REFUSED = [
    ("--tracking", f"ftp://ann:{MARKER}@host"),
    ("--tracking", f"file://ann:{MARKER}@host/mlruns"),
    ("--tracking", f"ann:{MARKER}@host:5000"),
    ("--tracking", f"http:/ann:{MARKER}@host"),
    ("--tracking", f"http://ann:{MARKER}@"),
    ("--tracking", f"http://ann:{MARKER}"),
    ("--tracking", f"http://ann:{MARKER}@host:port"),
    ("--storage", f"mysql://ann:{MARKER}@host/db"),
    ("--storage", f"ann:{MARKER}@host/db"),
    ("--storage", f"host=h user=ann password={MARKER}"),
    ("--storage", f"postgresql://ann:{MARKER}@host:port/db"),
    ("--storage", f"postgresql://ann:{MARKER}@{NOBODY}/db"),
    ("--storage", f"postgresql://{NOBODY}/db?user=ann&password={MARKER}"),
    ("--storage", f"postgresql://ann@{NOBODY}/db?sslpassword={MARKER}"),
    ("--storage", f"postgresql://ann@{NOBODY}/db?sslmode=nonsense&password={MARKER}"),
    ("--address", f"ann:{MARKER}@{NOBODY}"),
    ("--address", f"ray://ann:{MARKER}@{NOBODY}"),
    ("--address", f"http://ann:{MARKER}@{NOBODY}"),
]


@pytest.mark.parametrize(("option", "url"), REFUSED)
def test_what_is_refused_is_not_repeated(haltsweep, tmp_path: Path, option: str, url: str) -> None:
    (tmp_path / "quick.yaml").write_text(TINY)
    driver = [] if option == "--address" else ["--driver", "inline"]
    given = [option, url] if len(url) % 2 else [f"{option}={url}"]
    said = haltsweep("launch", "quick.yaml", *given, *driver, *([SILENT] if option == "--storage" else []))
    assert said.code in (1, 2), said
    assert not contains_password(said.out + said.err)
    assert not list(files_with_password(tmp_path))


@pytest.mark.parametrize("odd", ODD)
def test_odd_passwords_are_refused_or_fail_untold(odd: str) -> None:
    """Libraries that read them otherwise than they were meant would tell parts of them."""
    password = f"{odd}{MARKER}{odd}"
    with pytest.raises((InputError, StoreError), match=r"percent-encoded|(?i:connection refused)") as caught:
        require_answer(f"postgresql://ann:{password}@{NOBODY}/db")
    assert not contains_password(str(caught.value))
    if set(odd) & set("@/ #?["):
        with pytest.raises(InputError, match="percent-encoded") as refused:
            check_uri(f"http://ann:{password}@{NOBODY}")
        assert not contains_password(str(refused.value))
    with (
        pytest.raises(TrackingOutage, match=r"http://ann:\*\*\*@h failed") as outage,
        outages("http://ann:pw@h"),
    ):
        requests.get(f"http://ann:{quote(password, safe='')}@{NOBODY}", timeout=1)
    assert not contains_password(str(outage.value))


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--tracking", f"http://ann:{MARKER}@{NOBODY}"),
        ("doctor", "--storage", f"postgresql://ann:{MARKER}@{NOBODY}/db?password={MARKER}"),
        ("ui", "--no-browser", "--tracking", f"http://ann:{MARKER}@{NOBODY}"),
        ("ui", "--no-browser", "--tracking", f"ann:{MARKER}@{NOBODY}"),
        ("status", "tiny", "--storage", f"postgresql://ann:{MARKER}@{NOBODY}/db"),
        ("status", "tiny", f"http://ann:{MARKER}@{NOBODY}"),
        ("ui", "--port", f"http://ann:{MARKER}@{NOBODY}/with/a/path/so/long/that/it/is/broken/into/lines"),
        ("stop", "tiny", "--storage", f"postgresql://ann:{MARKER}@{NOBODY}/db"),
        (f"http://ann:{MARKER}@{NOBODY}",),
    ],
)
def test_no_command_repeats_it(haltsweep, arguments: tuple[str, ...]) -> None:
    said = haltsweep(*arguments)
    assert not contains_password(said.out + said.err)


@pytest.mark.slow
def test_a_tracking_server_that_is_away_all_the_time(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path, tracked=True)
    given = ("launch", "tiny.yaml", "--profile", "short", "--driver", "inline")
    said = shell.run(*given, MLFLOW_TRACKING_URI=f"http://ann:{MARKER}@{NOBODY}")
    assert "http://ann:***@127.0.0.1:1" in said.err
    assert said.code == 0, said
    _search(shell, said)


@pytest.mark.slow
def test_a_sweep_whose_server_is_lost_half_way(tmp_path: Path) -> None:
    """Both stores with a password; MLflow dies, comes back, is caught up with; every command is run."""
    shell = Shell.at(tmp_path, tracked=True)
    server = Server(shell.folder / "mlflow.db", shell.folder / "artifacts")
    server.start()
    with postgres() as database:
        storage, tracking = with_password(database.url()), with_password(server.uri)
        try:
            said = _lose_half_way(shell, server, storage, tracking)
            said += [shell.run("sync", "tiny", "--tracking", tracking)]
            assert said[-1].code == 1, said[-1]
            server.start()
            said += [shell.run("sync", "tiny", "--tracking", tracking)]
            assert said[-1].code == 0, said[-1]
            said += [_resumed_for_a_moment(shell)]
            for arguments in (("status", "tiny", "--json"), ("report", "tiny", "--json"), ("list",)):
                said += [shell.run(*arguments)]
                assert said[-1].code == 0, said[-1]
            said += [shell.run("doctor", "--tracking", tracking, "--storage", storage)]
        finally:
            server.stop()
        assert not contains_password(_tables(database.url()))
    _search(shell, *said)


def _lose_half_way(shell: Shell, server: Server, storage: str, tracking: str) -> list[Answer]:
    state = shell.folder / "runs" / "tiny" / "tracking.json"

    def noted(key: str) -> bool:
        try:
            return bool(json.loads(state.read_text())[key])
        except (OSError, ValueError, KeyError):
            return False

    stores = (f"--storage={storage}", "--tracking", tracking)
    changes = ("search=null", "baseline.train.steps=20000", "baseline.train.report_every=2")
    with shell.started("launch", "tiny.yaml", *changes, "--driver", "inline", *stores) as process:
        wait_for(lambda: noted("position"), process)
        server.kill()
        wait_for(lambda: noted("error"), process)
        interrupt(process)
        said = answer(process)
    assert said.code == 130, said
    return [said]


def _resumed_for_a_moment(shell: Shell) -> Answer:
    state = shell.folder / "runs" / "tiny" / "tracking.json"
    before = state.stat().st_mtime_ns
    with shell.started("resume", "tiny", "--driver", "inline") as process:
        wait_for(lambda: state.stat().st_mtime_ns != before, process)
        interrupt(process)
        said = answer(process)
    assert said.code == 130, said
    return said


def _search(shell: Shell, *said: Answer) -> None:
    kept = shell.folder / "runs" / "tiny" / "launch.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert list(files_with_password(shell.folder, shell.home)) == [kept]
    for each in said:
        assert not contains_password(each.out + each.err), each


def _tables(url: str) -> str:
    """All rows of all tables."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        names = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
        found = [repr(connection.execute(text(f'SELECT * FROM "{name}"')).all()) for (name,) in names]
    engine.dispose()
    assert any("opened" in each for each in found), "the ledger must be there to be searched"
    return "\n".join(found)
