"""Define the view of a sweep's arms in the MLflow UI: filter, order and columns of runs.

MLflow reads the columns of its page from the browser's storage or from a shared view. A shared view is a tag
of the experiment. A page opens the view if its address has `viewStateShareKey`. The experiment's description
has such a link, since MLflow's own list of experiments links to pages without the view.
"""

import base64
import json
import zlib
from collections.abc import Mapping

from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.desired_runs import searched_fields
from orchestrator.tracking.mlflow.points import PREFIX, metric_key
from orchestrator.tracking.mlflow.running_time import KEY as RUNNING
from trainables.metrics import look_up

KEY = "haltsweep-arms"
"""Name of the view in links."""
TAG = f"mlflow.sharedViewState.{KEY}"
NOTE_TAG = "mlflow.note.content"
_NOTE = "Arms with verdict, estimate, difference, p and n: "
ESTIMATE = "metrics.`answer/estimate`"
ANSWER_WIDTHS = {
    f"tags.`{PREFIX}decision`": 130,
    ESTIMATE: 135,
    "metrics.`answer/difference`": 145,
    "metrics.`answer/p`": 90,
    "metrics.`answer/n`": 85,
}
"""First columns in order, with widths in pixels."""
OTHER_WIDTHS = {
    f"tags.`{PREFIX}notice`": 150,
    f"tags.`{PREFIX}verdict`": 400,
    f"metrics.`{RUNNING}`": 160,
    f"tags.`{PREFIX}reason`": 140,
}
"""Last columns in order, with widths in pixels. The warning is before the verdict."""
PARAM_WIDTH = 110


def arms_view(plan: Plan) -> str:
    """Return the view of a sweep's arms in the format of MLflow's own button for sharing a view.

    Arms with a better estimate of the first primary outcome come first.
    """
    params = {f"params.`{metric_key(path)}`": PARAM_WIDTH for path in searched_fields(plan)}
    widths = ANSWER_WIDTHS | params | OTHER_WIDTHS
    directions = [
        better_direction(look_up(plan.metrics, outcome), outcome, plan.objectives, plan.answer)
        for outcome in plan.outcomes[:1]
    ]
    state = {
        "searchFilter": f"tags.`{PREFIX}kind` = 'arm'",
        # MLflow nests runs below their parents only when they are sorted by time.
        "orderByKey": ESTIMATE,
        "orderByAsc": directions == ["min"],
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(widths),
        "columnOrder": list(widths),
        "columnWidths": widths,
    }
    return f"deflate;{base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()}"


def view_tags(experiment_id: str, present: Mapping[str, str], view: str) -> dict[str, str]:
    """Return the tags of an experiment that are missing or outdated; a user's own description is retained.

    Args:
        experiment_id: MLflow's id of the experiment.
        present: Current tags of the experiment.
        view: View of the arms, as `arms_view` returns it.
    """
    page = f"#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&workflowType=machine_learning"
    expected_tags = {TAG: view}
    if present.get(NOTE_TAG, _NOTE).startswith("Arms with "):
        expected_tags[NOTE_TAG] = f"{_NOTE}[open]({page})"
    return {name: value for name, value in expected_tags.items() if present.get(name) != value}
