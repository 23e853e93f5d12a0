"""Find the pages of a sweep in the MLflow UI through MLflow's REST API, without importing MLflow."""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow.arms_view import KEY
from orchestrator.tracking.mlflow.points import PREFIX

TIMEOUT_S = 30.0
MOST_RUNS = 1000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the pages of one sweep."""

    runs: str
    """Page of all runs of the sweep, with trials below their arms."""
    arms: str
    """Page of the arms' runs, with estimate, difference, p, n and verdict as columns."""
    comparison: str
    """Page that compares the arms, in the order of the plan."""


def find_links(server: str, sweep: str, arms: Sequence[str]) -> Links:
    """Return the pages of a sweep.

    Args:
        server: URL of the MLflow server, which may contain a user and password.
        sweep: Name of the sweep.
        arms: Names of the arms, in the order of comparison.

    Raises:
        InputError: MLflow does not contain the sweep.
        StoreError: The server does not respond.
    """
    base = server.rstrip("/")
    url_without_user = without_user(base)
    name = urllib.parse.urlencode({"experiment_name": sweep})
    experiment_reply = _request(base, f"experiments/get-by-name?{name}")
    if experiment_reply is None:
        raise InputError(
            f"sweep {sweep!r} is not in the MLflow at {url_without_user}; `haltsweep sync {sweep}` puts it "
            "there"
        )
    experiment = experiment_reply["experiment"]["experiment_id"]
    newest = _runs(base, experiment, f"tags.`{PREFIX}kind` = 'sweep'")[:1]
    run_ids: dict[str, str] = {}
    for run in newest:
        for arm in _runs(base, experiment, f"tags.`mlflow.parentRunId` = '{run['info']['run_id']}'"):
            tags = {tag["key"]: tag["value"] for tag in arm["data"]["tags"]}
            run_ids[tags.get(f"{PREFIX}arm", "")] = arm["info"]["run_id"]
    compared_ids = [run_ids[arm] for arm in arms if arm in run_ids]
    page = f"/#/experiments/{experiment}/runs"
    return Links(
        runs=_link(url_without_user, page),
        arms=_link(url_without_user, page, viewStateShareKey=KEY),
        comparison=_link(
            url_without_user, "/#/compare-runs", runs=_json(compared_ids), experiments=_json([experiment])
        ),
    )


def without_user(url: str) -> str:
    """Return `url` without user and password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _link(base: str, page: str, **query: str) -> str:
    # `workflowType` must be last, because the page that compares runs searches for "?runs".
    return f"{base}{page}?{urllib.parse.urlencode({**query, 'workflowType': 'machine_learning'})}"


def _runs(base: str, experiment: str, filter_: str) -> list[dict[str, Any]]:
    """Return the runs that match the filter `filter_`, newest first."""
    metadata = {
        "experiment_ids": [experiment],
        "filter": filter_,
        "max_results": MOST_RUNS,
        "order_by": ["attributes.start_time DESC"],
    }
    reply = _request(base, "runs/search", metadata) or {}
    runs: list[dict[str, Any]] = reply.get("runs", [])
    return runs


def _request(base: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the server's answer; None if the resource does not exist."""
    data = None if body is None else json.dumps(body).encode()
    place = without_user(base)
    headers = {"Content-Type": "application/json", **_authorization(base)}
    request = urllib.request.Request(  # noqa: S310 - http alone gets here
        f"{place}/api/2.0/mlflow/{path}", data, headers
    )
    try:
        with _opener(base).open(request, timeout=TIMEOUT_S) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
            raise StoreError(f"MLflow at {place} must answer, got {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"MLflow at {place} must answer, got {error}; is the server running?") from error


def _authorization(url: str) -> dict[str, str]:
    # urllib treats user and password as part of the host.
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return {}
    user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _opener(base: str) -> urllib.request.OpenerDirector:
    # A proxy from the environment cannot reach the loopback address of this machine.
    is_local = urllib.parse.urlsplit(base).hostname in LOOPBACK
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_local else []))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
