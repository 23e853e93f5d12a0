"""Define the view of a sweep's arms in the MLflow UI: filter, order and columns of runs.

MLflow reads the columns of its page from the browser's storage or from a shared view. A shared view is a tag
of the experiment. A page opens the view if its address has `viewStateShareKey`. The experiment's description
has such a link, since MLflow's own list of experiments links to pages without the view.
"""

import base64
import json
import zlib
from collections.abc import Mapping

from orchestrator.tracking.mlflow.points import PREFIX
from orchestrator.tracking.mlflow.running_time import KEY as RUNNING

KEY = "haltsweep-arms"
"""Name of the view in links."""
TAG = f"mlflow.sharedViewState.{KEY}"
NOTE_TAG = "mlflow.note.content"
_NOTE = "Arms with estimate, difference, p, n and verdict: "
WIDTHS = {
    "metrics.`answer/estimate`": 135,
    "metrics.`answer/difference`": 145,
    "metrics.`answer/p`": 90,
    "metrics.`answer/n`": 85,
    f"metrics.`{RUNNING}`": 160,
    f"tags.`{PREFIX}notice`": 150,
    f"tags.`{PREFIX}verdict`": 400,
    f"tags.`{PREFIX}reason`": 140,
}
"""Columns in order, with widths in pixels. The warning is before the verdict."""


def arms_view() -> str:
    """Return the view in the format of MLflow's own button for sharing a view."""
    state = {
        "searchFilter": f"tags.`{PREFIX}kind` = 'arm'",
        # MLflow nests runs below their parents only when they are sorted by time.
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(WIDTHS),
        "columnOrder": list(WIDTHS),
        "columnWidths": WIDTHS,
    }
    return f"deflate;{base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()}"


def view_tags(experiment_id: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that are missing or outdated in `present`; a user's own description is retained."""
    page = f"#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&workflowType=machine_learning"
    wanted = {TAG: arms_view()}
    if present.get(NOTE_TAG, _NOTE).startswith(_NOTE):
        wanted[NOTE_TAG] = f"{_NOTE}[open]({page})"
    return {name: value for name, value in wanted.items() if present.get(name) != value}
