"""Find the pages of a sweep in the MLflow UI."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from orchestrator.errors import InputError
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.arms_view import KEY
from orchestrator.tracking.mlflow.mlflow_runs import open_client, outages
from orchestrator.tracking.mlflow.points import PREFIX

LOOPBACK = "127.0.0.1,localhost,::1"
"""Hosts that are requested without a proxy, which cannot reach the loopback address of this machine."""


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the pages of one sweep."""

    runs: str
    """Page of all runs of the sweep, with trials below their arms."""
    arms: str
    """Page of the arms' runs with their verdicts, the best estimate of the main outcome first."""
    comparison: str
    """Page that compares the arms, in the order of the plan."""


def find_links(server: str, plan: Plan) -> Links:
    """Return the pages of a sweep.

    Args:
        server: URL of the MLflow server, which may contain a user and password.
        plan: Plan of the sweep.

    Raises:
        InputError: MLflow does not contain the sweep.
        StoreError: The server does not respond.
    """
    os.environ["no_proxy"] = f"{os.environ.get('no_proxy') or os.environ.get('NO_PROXY', '')},{LOOPBACK}"
    base = without_user(server.rstrip("/"))
    with outages(server):
        client: Any = open_client(server, Path())
        found = client.get_experiment_by_name(plan.name)
        if found is not None:
            experiment, newest_first = str(found.experiment_id), ["attributes.start_time DESC"]
            sweeps = client.search_runs(
                [experiment], f"tags.`{PREFIX}kind` = 'sweep'", max_results=1, order_by=newest_first
            )
            filters = [f"tags.`mlflow.parentRunId` = '{run.info.run_id}'" for run in sweeps]
            arms = [arm for each in filters for arm in client.search_runs([experiment], each)]
    if found is None:
        raise InputError(
            f"sweep {plan.name!r} is not in the MLflow at {base}; `haltsweep sync {plan.name}` puts it there"
        )
    run_ids = {run.data.tags.get(f"{PREFIX}arm"): run.info.run_id for run in arms}
    compared_ids = [run_ids[arm.name] for arm in plan.arms if arm.name in run_ids]
    compared = json.dumps(compared_ids, separators=(",", ":"))
    page = f"/#/experiments/{experiment}/runs"
    return Links(
        runs=_link(base, page),
        arms=_link(base, page, viewStateShareKey=KEY),
        comparison=_link(base, "/#/compare-runs", runs=compared, experiments=json.dumps([experiment])),
    )


def without_user(url: str) -> str:
    """Return `url` without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _link(base: str, page: str, **query: str) -> str:
    # `workflowType` must be last, because the page that compares runs searches for "?runs".
    return f"{base}{page}?{urlencode({**query, 'workflowType': 'machine_learning'})}"
