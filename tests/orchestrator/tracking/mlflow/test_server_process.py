"""The MLflow server of `haltsweep ui` refuses requests without its secret path."""

import asyncio
import hashlib
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.tracking.mlflow.server import serve_store
from orchestrator.tracking.mlflow.server_process import TokenPath, require_tables

TOKEN = "a-token"


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


@pytest.mark.parametrize("path", ["/", "/a-token", "/a-tokem/", "//a-token/", "/x/a-token/"])
def test_requests_outside_the_secret_path_do_not_reach_mlflow(path: str) -> None:
    scopes, messages = call_middleware(path)
    assert not scopes
    assert messages[0]["status"] == 403
    assert TOKEN not in str(messages)
    scopes, messages = call_middleware(path, "websocket")
    assert not scopes
    assert messages == [{"type": "websocket.close"}]


@pytest.mark.parametrize("path", ["/", "/é/b"])
def test_requests_below_the_secret_path_reach_mlflow(path: str) -> None:
    scopes, messages = call_middleware(f"/{TOKEN}{path}")
    assert [(scope["path"], scope["raw_path"]) for scope in scopes] == [(path, path.encode())]
    assert (b"referrer-policy", b"same-origin") in messages[0]["headers"]


def test_foreign_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE experiments (a TEXT)")
        database.commit()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="alembic_version"):
        require_tables(f"sqlite:///{file}")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.db"]


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


@pytest.mark.slow
def test_nobody_reads_or_deletes_without_the_secret_path(empty_mlflow: Path) -> None:
    artifacts = empty_mlflow.parent / "mlartifacts"
    artifacts.mkdir()
    with closing(sqlite3.connect(empty_mlflow)) as database:
        database.execute("PRAGMA journal_mode=WAL")
    with serve_store(f"sqlite:///{empty_mlflow}", artifacts, None) as server:
        body = {"name": "mine", "artifact_location": (artifacts / "mine").as_uri()}
        _, created = send_request(server.url, "api/2.0/mlflow/experiments/create", body)
        experiment = created["experiment_id"]
        base = server.url.rsplit("/", 2)[0] + "/"
        answers = {
            send_request(base, path, body)
            for path, body in (
                ("", None),
                (f"api/2.0/mlflow/experiments/get?experiment_id={experiment}", None),
                ("api/2.0/mlflow/experiments/delete", {"experiment_id": experiment}),
                ("api/2.0/mlflow-artifacts/artifacts?path=", None),
            )
        }
        path = f"api/2.0/mlflow/experiments/get?experiment_id={experiment}"
        _, answer = send_request(server.url, path)
    assert [status for status, _ in answers] == [403], "every refusal must have the same text"
    assert answer["experiment"]["lifecycle_stage"] == "active"
    assert not list(empty_mlflow.parent.glob("*-wal")), "the ended server must leave all data in one file"
