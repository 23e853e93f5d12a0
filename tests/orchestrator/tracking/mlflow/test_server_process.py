"""The MLflow behind `haltsweep ui`: other users get nothing."""

import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.tracking.mlflow.server import serve_store
from orchestrator.tracking.mlflow.server_process import TokenPath, require_tables

TOKEN = "a-token"
NOBODY = 65534
STRANGER = """
import json, os, sys, urllib.error, urllib.request
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
answers = []
for method, path, body in json.load(sys.stdin):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        sys.argv[2] + path, data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with opener.open(request) as reply:
            answers.append([reply.status, reply.read().decode()])
    except urllib.error.HTTPError as error:
        answers.append([error.code, error.read().decode()])
print(json.dumps({"uid": os.getuid(), "answers": answers}))
"""


def call(path: str, kind: str = "http") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the application behind the middleware is called with, and what the caller is answered."""
    seen: list[dict[str, Any]] = []
    sent: list[dict[str, Any]] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "raw_path": path.encode(), "headers": []}
    asyncio.run(TokenPath(app, TOKEN)(scope, None, send))  # type: ignore[arg-type]
    return seen, sent


@pytest.mark.parametrize(
    "path",
    ["/", "", "/health", "/a-token", "/a-tokem/", "//a-token/", "/x/a-token/", "/A-TOKEN/", "/é-token/"],
)
def test_nothing_outside_the_secret_path_reaches_mlflow(path: str) -> None:
    seen, sent = call(path)
    assert not seen
    assert sent[0]["status"] == 403
    assert TOKEN not in str(sent)
    seen, sent = call(path, "websocket")
    assert not seen
    assert sent == [{"type": "websocket.close"}]


@pytest.mark.parametrize("path", ["/", "/version", "/a-token/", "/é/b"])
def test_only_mlflow_is_below_the_secret_path(path: str) -> None:
    seen, sent = call(f"/{TOKEN}{path}")
    assert [(each["path"], each["raw_path"]) for each in seen] == [(path, path.encode())]
    assert (b"referrer-policy", b"same-origin") in sent[0]["headers"]


@pytest.mark.parametrize("table", ["other", "experiments"])
def test_a_foreign_database_is_refused_and_stays_as_it_is(table: str, tmp_path: Path) -> None:
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"CREATE TABLE {table} (a TEXT)")
        database.commit()
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="alembic_version"):
        require_tables(f"sqlite:///{file}")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["foreign.db"]


@pytest.fixture(scope="module")
def served(empty_mlflow: Path) -> Iterator[str]:
    """The secret address of a server."""
    artifacts = empty_mlflow.parent / "mlartifacts"
    artifacts.mkdir()
    with serve_store(f"sqlite:///{empty_mlflow}", artifacts, None) as server:
        yield server.url


def ask(server: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        server + path,
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request) as reply:
            text = reply.read().decode()
            return reply.status, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def new_run(server: str, name: str, location: Path) -> str:
    """A run of a new experiment that keeps its artifacts at `location`."""
    _, made = ask(
        server, "api/2.0/mlflow/experiments/create", {"name": name, "artifact_location": location.as_uri()}
    )
    _, run = ask(server, "api/2.0/mlflow/runs/create", {"experiment_id": made["experiment_id"]})
    run_id: str = run["run"]["info"]["run_id"]
    return run_id


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing_and_deletes_nothing(served: str, empty_mlflow: Path) -> None:
    run_id = new_run(served, "mine", empty_mlflow.parent / "mlartifacts" / "mine")
    _, found = ask(served, "api/2.0/mlflow/experiments/get-by-name?experiment_name=mine")
    experiment = found["experiment"]["experiment_id"]
    requests = [
        ("GET", "", None),
        ("GET", "health", None),
        ("GET", f"api/2.0/mlflow/experiments/get?experiment_id={experiment}", None),
        ("POST", "api/2.0/mlflow/experiments/delete", {"experiment_id": experiment}),
        ("POST", "ajax-api/2.0/mlflow/experiments/delete", {"experiment_id": experiment}),
        ("POST", "api/2.0/mlflow/experiments/create", {"name": "evil", "artifact_location": "file:///etc"}),
        ("POST", "api/2.0/mlflow/runs/delete", {"run_id": run_id}),
        ("GET", f"get-artifact?path=passwd&run_uuid={run_id}", None),
        ("PUT", "api/2.0/mlflow-artifacts/artifacts/evil", {}),
        ("GET", "api/2.0/mlflow-artifacts/artifacts?path=", None),
    ]
    base = served.rsplit("/", 2)[0] + "/"
    program = [sys.executable, "-c", STRANGER, str(NOBODY), base]
    done = subprocess.run(program, input=json.dumps(requests), capture_output=True, text=True, check=True)
    stranger = json.loads(done.stdout)
    assert stranger["uid"] == NOBODY
    assert [status for status, _ in stranger["answers"]] == [403] * len(requests)
    assert len({text for _, text in stranger["answers"]}) == 1, "the same words, whatever is asked for"
    _, after = ask(served, "api/2.0/mlflow/experiments/search?max_results=100")
    names = {each["name"]: each["lifecycle_stage"] for each in after["experiments"]}
    assert names["mine"] == "active"
    assert "evil" not in names
