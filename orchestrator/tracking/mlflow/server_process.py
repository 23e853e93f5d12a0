"""Serve MLflow's web application below a secret path, in a process started by `mlflow.server`.

Every local user can connect to a port of the loopback address. MLflow lets every client delete experiments
and read files, so requests reach it only below `/TOKEN/`. The token is in the path instead of a cookie:
browsers send cookies of one port to all ports of a host, and add them to requests from other pages.
"""

import hmac
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from orchestrator.errors import StoreError
from orchestrator.files.redact import redact
from orchestrator.ledger.sql.engine import table_names
from orchestrator.tracking.mlflow.mlflow_runs import TABLES
from orchestrator.tracking.mlflow.server import NO_STORE

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Types of ASGI."""
GRACE_S = 2
"""Seconds for open requests when the server is asked to end."""


class TokenPath:
    """ASGI middleware that forwards requests below `/TOKEN/` without this prefix and refuses all others."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._prefix = f"/{token}/".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as specified by ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        length = len(self._prefix)
        path = scope["path"].encode()
        if not hmac.compare_digest(path[:length], self._prefix):
            await _refuse(scope, send)
            return

        async def send_without_referrer(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Links to other sites must not send the token as referrer.
                message["headers"] = [*message.get("headers", ()), (b"referrer-policy", b"same-origin")]
            await send(message)

        inner = {**scope, "path": path[length - 1 :].decode()}
        if scope.get("raw_path"):
            inner["raw_path"] = scope["raw_path"][length - 1 :]
        await self._app(inner, receive, send_without_referrer)


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    body = b"Open the address that `haltsweep ui` has printed: it contains a token.\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def require_tables(uri: str) -> None:
    """Raise `StoreError` unless the database is an MLflow store, since MLflow would add its tables to it."""
    if missing := TABLES - table_names(uri):
        raise StoreError(f"an MLflow store has tables {', '.join(sorted(TABLES))}, found no {min(missing)}")


def main() -> int:
    """Serve on the inherited socket until a signal.

    Standard input contains the settings as JSON, since they include secrets: `fd` of the listening socket,
    `token`, `uri` of the store and its folder `artifacts`.
    """
    settings = json.load(sys.stdin)
    from mlflow import MlflowClient
    from mlflow.server import constants

    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: settings["uri"],
        constants.REGISTRY_STORE_URI_ENV_VAR: settings["uri"],
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",  # for experiments without a folder
        constants.ARTIFACTS_DESTINATION_ENV_VAR: settings["artifacts"],
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    try:
        require_tables(settings["uri"])
        MlflowClient(settings["uri"]).search_experiments(max_results=1)
    except Exception as error:  # exceptions of MLflow, SQLAlchemy or any database driver
        print(redact(error).strip().partition("\n")[0], file=sys.stderr)
        return NO_STORE
    from mlflow.server.fastapi_app import app

    config = uvicorn.Config(
        TokenPath(app, settings["token"]),
        log_level="warning",
        access_log=False,  # paths contain the token
        timeout_graceful_shutdown=GRACE_S,
    )
    # uvicorn raises SIGTERM again after its shutdown. Ended by it, this process would not close the database,
    # and SQLite would leave its -wal file.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with socket.socket(fileno=settings["fd"]) as listener:
        uvicorn.Server(config).run([listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
