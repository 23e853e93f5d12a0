"""Sweep files of other people name servers; these servers get no credentials of the reader."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.execution.sweep.launch_folder import Setup, create_sweep_folder
from orchestrator.identity import SweepFolder
from tests.support.mlflow.mlflow_answers import answering, with_arms
from tests.support.processes.commands import Shell
from tests.support.specs.plans import make_plan
from tests.support.sweeps.finished import finished
from tests.support.sweeps.launched import launched

TOKEN = "tok-3f9a1c77"
PLAN = make_plan(2)
MLFLOW_COMMANDS = [
    ("verify", PLAN.name),
    ("ui", PLAN.name, "--no-browser"),
    ("sync", PLAN.name),
    ("resume", PLAN.name, "--driver", "inline"),
    ("remove", PLAN.name, "--yes", "--mlflow"),
]
LEDGER_COMMANDS = [
    *((command, PLAN.name) for command in ("status", "best", "report", "records", "bundle", "stop")),
    *(("extend", PLAN.name), ("logs", PLAN.name, "arm-0"), ("compare", PLAN.name, PLAN.name)),
    *MLFLOW_COMMANDS,
]


@pytest.fixture
def server():
    table = with_arms(*(arm.name for arm in PLAN.arms))
    with answering({**table, "/health": (200, "OK")}) as answers:
        yield answers


@pytest.fixture
def database():
    """Yield a socket that counts connections and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        yield listener


def foreign_ledger(root: Path, database: socket.socket) -> str:
    """Create a folder with a ledger in a database; return the address without passwords."""
    address = f"127.0.0.1:{database.getsockname()[1]}/sweeps"
    setup = Setup(root / "data", storage=f"postgresql+psycopg://me@{address}")
    create_sweep_folder(PLAN, SweepFolder(root / "runs" / PLAN.name), "", {}, setup)
    return address


def count_connections(database: socket.socket) -> int:
    count = 0
    try:
        while True:
            database.accept()[0].close()
            count += 1
    except BlockingIOError:
        return count


@pytest.mark.parametrize("arguments", MLFLOW_COMMANDS, ids=lambda command: command[0])
def test_mlflow_named_only_in_files_gets_no_request(arguments, tmp_path, haltsweep, server, monkeypatch):
    launched(tmp_path, PLAN, tracking=server.url)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", TOKEN)
    result = haltsweep(*arguments)
    assert result.code == 2
    assert server.asked == []
    refusal = result.out + result.err
    assert all(part in refusal for part in (server.url, "doctor --tracking", "$MLFLOW_TRACKING_PASSWORD"))


@pytest.mark.parametrize("is_named", [False, True], ids=["without credentials", "by variable"])
def test_servers_get_requests_without_credentials_or_if_the_user_names_them(
    is_named, tmp_path, haltsweep, server, monkeypatch
):
    launched(tmp_path, PLAN, tracking=server.url)
    if is_named:
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{server.url}/")
    assert haltsweep("ui", PLAN.name, "--no-browser").code == 0
    assert server.asked


@pytest.mark.slow
def test_server_that_the_user_has_named_gets_credentials_later(tmp_path, server):
    shell = Shell.at(tmp_path, tracked=True)
    launched(shell.folder, PLAN, tracking=server.url)
    state = tmp_path / "state"
    variables: dict[str, Any] = {"MLFLOW_TRACKING_TOKEN": TOKEN, "XDG_STATE_HOME": str(state)}
    arguments = ("ui", PLAN.name, "--no-browser")
    assert shell.run(*arguments, **variables).code == 2
    shell.run("doctor", "--tracking", server.url, **variables)
    server.asked.clear()
    assert shell.run(*arguments, **variables).code == 0
    assert server.asked
    (file,) = (state / "haltsweep").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert server.url not in file.read_text()


@pytest.mark.parametrize("arguments", LEDGER_COMMANDS, ids=lambda command: command[0])
def test_database_named_only_in_files_gets_no_password(arguments, tmp_path, haltsweep, database, monkeypatch):
    address = foreign_ledger(tmp_path, database)
    monkeypatch.setenv("PGPASSWORD", TOKEN)
    result = haltsweep(*arguments)
    assert result.code == 2
    assert count_connections(database) == 0
    assert all(part in result.out + result.err for part in (address, "doctor --storage", "$PGPASSWORD"))


def test_list_shows_the_other_sweeps(tmp_path, haltsweep, database, monkeypatch):
    foreign_ledger(tmp_path, database)
    other_plan = replace(make_plan(1), name="other")
    launched(tmp_path, other_plan)
    monkeypatch.setenv("PGPASSWORD", TOKEN)
    result = haltsweep("list", "--json")
    assert result.code == 0
    assert {row["name"]: row["state"] for row in json.loads(result.out)} == {
        PLAN.name: "not allowed",
        "other": "unfinished",
    }
    assert count_connections(database) == 0


@pytest.mark.slow
def test_artifact_server_of_a_local_store_gets_no_credentials(tmp_path, haltsweep, server, monkeypatch):
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    url = f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}"
    finished(tmp_path, PLAN)
    open_store: Any = SqlAlchemyStore
    store = open_store(url, str(tmp_path / "files"))
    store.create_experiment(PLAN.name, f"{server.url}/files")
    store.engine.dispose()
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    result = haltsweep("sync", PLAN.name, "--tracking", url)
    assert result.code == 2
    assert server.asked == []
