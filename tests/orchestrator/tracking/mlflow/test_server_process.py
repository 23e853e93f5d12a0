"""The MLflow server of `haltsweep ui` refuses other users."""

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
NOBODY_USER_ID = 65534
OTHER_USER_CODE = """
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


def call_middleware(path: str, kind: str = "http") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Call the middleware; return the scopes that reach the application, and the messages that the caller
    gets."""
    scopes: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {"type": kind, "path": path, "raw_path": path.encode(), "headers": []}
    asyncio.run(TokenPath(app, TOKEN)(scope, None, send))  # type: ignore[arg-type]
    return scopes, messages


@pytest.mark.parametrize(
    "path",
    ["/", "", "/health", "/a-token", "/a-tokem/", "//a-token/", "/x/a-token/", "/A-TOKEN/", "/é-token/"],
)
def test_requests_outside_the_secret_path_do_not_reach_mlflow(path: str) -> None:
    scopes, messages = call_middleware(path)
    assert not scopes
    assert messages[0]["status"] == 403
    assert TOKEN not in str(messages)
    scopes, messages = call_middleware(path, "websocket")
    assert not scopes
    assert messages == [{"type": "websocket.close"}]


@pytest.mark.parametrize("path", ["/", "/version", "/a-token/", "/é/b"])
def test_requests_below_the_secret_path_reach_mlflow(path: str) -> None:
    scopes, messages = call_middleware(f"/{TOKEN}{path}")
    assert [(scope["path"], scope["raw_path"]) for scope in scopes] == [(path, path.encode())]
    assert (b"referrer-policy", b"same-origin") in messages[0]["headers"]


@pytest.mark.parametrize("table", ["other", "experiments"])
def test_foreign_database_is_refused_and_unchanged(table: str, tmp_path: Path) -> None:
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"CREATE TABLE {table} (a TEXT)")
        database.commit()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="alembic_version"):
        require_tables(f"sqlite:///{file}")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.db"]


@pytest.fixture(scope="module")
def server_url(empty_mlflow: Path) -> Iterator[str]:
    """Start a server; yield its secret address."""
    artifacts = empty_mlflow.parent / "mlartifacts"
    artifacts.mkdir()
    with serve_store(f"sqlite:///{empty_mlflow}", artifacts, None) as server:
        yield server.url


def send_request(server: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
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


def create_run(server: str, name: str, location: Path) -> str:
    """Create a run in a new experiment whose artifacts are at `location`."""
    _, experiment = send_request(
        server, "api/2.0/mlflow/experiments/create", {"name": name, "artifact_location": location.as_uri()}
    )
    _, run = send_request(
        server, "api/2.0/mlflow/runs/create", {"experiment_id": experiment["experiment_id"]}
    )
    run_id: str = run["run"]["info"]["run_id"]
    return run_id


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_and_deletes_nothing(server_url: str, empty_mlflow: Path) -> None:
    run_id = create_run(server_url, "mine", empty_mlflow.parent / "mlartifacts" / "mine")
    _, answer = send_request(server_url, "api/2.0/mlflow/experiments/get-by-name?experiment_name=mine")
    experiment = answer["experiment"]["experiment_id"]
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
    base = server_url.rsplit("/", 2)[0] + "/"
    program = [sys.executable, "-c", OTHER_USER_CODE, str(NOBODY_USER_ID), base]
    result = subprocess.run(program, input=json.dumps(requests), capture_output=True, text=True, check=True)
    other_user = json.loads(result.stdout)
    assert other_user["uid"] == NOBODY_USER_ID
    assert [status for status, _ in other_user["answers"]] == [403] * len(requests)
    assert len({text for _, text in other_user["answers"]}) == 1, "every refusal must have the same text"
    _, experiments = send_request(server_url, "api/2.0/mlflow/experiments/search?max_results=100")
    names = {item["name"]: item["lifecycle_stage"] for item in experiments["experiments"]}
    assert names["mine"] == "active"
    assert "evil" not in names
