"""Where in the MLflow UI a sweep is, asked of the server that shows it. Loads no MLflow."""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError, StoreError
from orchestrator.tracking.mlflow.arms_view import KEY, TAG
from orchestrator.tracking.mlflow.points import PREFIX

TIMEOUT_S = 30.0
MOST_RUNS = 1000
ARMS = f"tags.`{PREFIX}kind` = 'arm'"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Links:
    """Pages of one sweep."""

    runs: str
    """All runs of the sweep, trials below their arms."""
    arms: str
    """The runs of the arms alone, with their answers as columns, ready to be selected and compared."""
    comparison: str
    """The arms side by side, in the order of the plan."""


def find_links(server: str, sweep: str, arms: Sequence[str]) -> Links:
    """The pages of `sweep`, whose arms are `arms`, on the MLflow at `server`.

    Raises InputError if the sweep is not there, StoreError if the server does not answer.
    """
    base = server.rstrip("/")
    shown = without_user(base)
    name = urllib.parse.urlencode({"experiment_name": sweep})
    found = _ask(base, f"experiments/get-by-name?{name}")
    if found is None:
        raise InputError(
            f"sweep {sweep!r} is not in the MLflow at {shown}; `haltsweep sync {sweep}` puts it there"
        )
    experiment = found["experiment"]["experiment_id"]
    newest = _runs(base, experiment, f"tags.`{PREFIX}kind` = 'sweep'")[:1]
    run_ids: dict[str, str] = {}
    for run in newest:
        for arm in _runs(base, experiment, f"tags.`mlflow.parentRunId` = '{run['info']['run_id']}'"):
            tags = {tag["key"]: tag["value"] for tag in arm["data"]["tags"]}
            run_ids[tags.get(f"{PREFIX}arm", "")] = arm["info"]["run_id"]
    compared = [run_ids[arm] for arm in arms if arm in run_ids]
    page = f"/#/experiments/{experiment}/runs"
    views = {tag["key"] for tag in found["experiment"].get("tags", ())}
    # What an earlier haltsweep wrote has no view.
    flat = {"searchFilter": ARMS, "orderByKey": "tags.`mlflow.runName`", "orderByAsc": "true"}
    arms_page = {"viewStateShareKey": KEY} if TAG in views else flat
    return Links(
        runs=_link(shown, page),
        arms=_link(shown, page, **arms_page),
        comparison=_link(shown, "/#/compare-runs", runs=_json(compared), experiments=_json([experiment])),
    )


def without_user(url: str) -> str:
    """The page at `url`, without the user and password who may see it."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _link(base: str, page: str, **query: str) -> str:
    """A page of the UI, in the part of it that is about training models."""
    # Last, because the page that compares looks for "?runs", the question mark included.
    return f"{base}{page}?{urllib.parse.urlencode({**query, 'workflowType': 'machine_learning'})}"


def _runs(base: str, experiment: str, which: str) -> list[dict[str, Any]]:
    """Runs that `which` admits, newest first."""
    wanted = {
        "experiment_ids": [experiment],
        "filter": which,
        "max_results": MOST_RUNS,
        "order_by": ["attributes.start_time DESC"],
    }
    found = _ask(base, "runs/search", wanted) or {}
    runs: list[dict[str, Any]] = found.get("runs", [])
    return runs


def _ask(base: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The server's answer; None if it says that there is no such thing."""
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
    # urllib takes user and password for a part of the host.
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return {}
    user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _opener(base: str) -> urllib.request.OpenerDirector:
    # A proxy of the environment knows nothing of this machine's loopback address.
    local = urllib.parse.urlsplit(base).hostname in LOOPBACK
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
