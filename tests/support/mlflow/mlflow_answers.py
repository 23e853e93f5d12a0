"""A server that answers requests to MLflow's REST API from a table."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


@dataclass
class MlflowServer:
    """Status and body by the last part of the path; a body that is no string is sent as JSON."""

    url: str
    table: dict[str, Answer]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """Paths with their queries, and bodies, in the order of the requests."""
    credentials: list[str | None] = field(default_factory=list)
    """Value of the header Authorization of every request."""


@contextmanager
def answering(table: Mapping[str, Answer]) -> Iterator[MlflowServer]:
    """Serve `table` on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            path = self.path.removeprefix("/api/2.0/mlflow/")
            answers.asked.append((path, body))
            answers.credentials.append(self.headers["Authorization"])
            status, reply = answers.table[path.partition("?")[0]]
            reply = reply(body) if callable(reply) else reply
            self.send_response(status)
            self.end_headers()
            self.wfile.write((reply if isinstance(reply, str) else json.dumps(reply)).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        answers = MlflowServer(f"http://127.0.0.1:{server.server_port}", dict(table))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield answers
        finally:
            server.shutdown()  # with a closed socket, the loop of the server would never pause


def run(run_id: str, **tags: str) -> dict[str, Any]:
    """Return a run as MLflow describes it, with tags of haltsweep."""
    tag_list = [{"key": f"haltsweep.{key}", "value": value} for key, value in tags.items()]
    return {"info": {"run_id": run_id}, "data": {"tags": tag_list}}


def with_arms(*arms: str) -> dict[str, Answer]:
    """Return the answers of an MLflow with one sweep, experiment 7, whose arms have the runs `id-<arm>`."""

    def search_runs(body: Mapping[str, Any]) -> dict[str, Any]:
        if "'sweep'" in body["filter"]:
            sweeps = [run("newest", kind="sweep"), run("older", kind="sweep")]
            return {"runs": sweeps[: body["max_results"]]}
        assert body["filter"] == "tags.`mlflow.parentRunId` = 'newest'"
        return {"runs": [run(f"id-{arm}", arm=arm) for arm in reversed(arms)]}

    return {
        "experiments/get-by-name": (200, {"experiment": {"experiment_id": "7"}}),
        "runs/search": (200, search_runs),
    }
