"""An MLflow server in memory that can hang."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


class SlowMlflow:
    """Answers the requests of tracking, except while `hangs` is true."""

    def __init__(self, artifacts: Path) -> None:
        self.hangs = False
        self.asked: list[str] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self._artifacts = artifacts
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        mlflow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(dict(parse_qsl(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

            def _answer(self, body: dict[str, Any]) -> None:
                endpoint = self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
                mlflow.asked.append(endpoint)
                while mlflow.hangs:
                    time.sleep(0.05)
                answer = mlflow.reply(endpoint, body)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass  # the client has closed the connection

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.hangs = False
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def reply(self, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            match endpoint:
                case "experiments/get-by-name":
                    return {"experiment": {"experiment_id": "7", "name": "it", "lifecycle_stage": "active"}}
                case "experiments/set-experiment-tag" | "runs/log-inputs":
                    return {}
                case "runs/create":
                    return {"run": self._create(body)}
                case "runs/search":
                    return {"runs": list(self.runs.values())}
                case "runs/get":
                    return {"run": self.runs[body["run_id"]]}
                case "runs/log-batch":
                    self._log(self.runs[body["run_id"]]["data"], body)
                    return {}
                case "runs/update":
                    info = self.runs[body["run_id"]]["info"]
                    info |= {key: value for key, value in body.items() if key in ("status", "end_time")}
                    return {"run_info": info}
        raise AssertionError(f"unexpected request of {endpoint}")

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        run_id = uuid.uuid4().hex
        info = {
            "run_id": run_id,
            "run_uuid": run_id,
            "experiment_id": "7",
            "status": "RUNNING",
            "start_time": body["start_time"],
            "artifact_uri": (self._artifacts / run_id).as_uri(),
            "lifecycle_stage": "active",
        }
        data = {"tags": body.get("tags", []), "params": [], "metrics": []}
        self.runs[run_id] = {"info": info, "data": data}
        return self.runs[run_id]

    @staticmethod
    def _log(data: dict[str, Any], body: dict[str, Any]) -> None:
        latest = {entry["key"]: entry for entry in data["metrics"]}
        for metric in body.get("metrics", []):
            latest[metric["key"]] = metric
        data["metrics"] = list(latest.values())
        data["params"] += body.get("params", [])
        tags = {entry["key"]: entry for entry in data["tags"]} | {
            entry["key"]: entry for entry in body.get("tags", [])
        }
        data["tags"] = list(tags.values())


@contextmanager
def slow_mlflow(artifacts: Path) -> Iterator[SlowMlflow]:
    """Run a server on a free port of this machine until the end of the block."""
    server = SlowMlflow(artifacts)
    server.start()
    try:
        yield server
    finally:
        server.stop()
