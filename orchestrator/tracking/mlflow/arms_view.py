"""Define the view of a sweep's arms in the MLflow UI: filter, order and columns of runs.

An address of MLflow can state filter and order, but not columns. So the view is stored as MLflow's own button
for sharing a view stores it: in a tag of the experiment, which an address names by `viewStateShareKey`.
"""

import base64
import json
import zlib

from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import Plan
from orchestrator.tracking.mlflow.points import PREFIX, metric_key
from orchestrator.tracking.mlflow.running_time import KEY as RUNNING
from trainables.metrics import look_up

KEY = "haltsweep-arms"
"""Name of the view in addresses."""
TAG = f"mlflow.sharedViewState.{KEY}"
ESTIMATE = "metrics.`answer/estimate`"


def arms_view(plan: Plan) -> str:
    """Return the view, in which arms with a better estimate of the main outcome come first."""
    searched = dict.fromkeys(dimension.path for arm in plan.arms for dimension in arm.space.dimensions)
    columns = [
        *(f"tags.`{PREFIX}decision`", ESTIMATE),
        *(f"metrics.`answer/{name}`" for name in ("difference", "p", "n")),
        *(f"params.`{metric_key(path)}`" for path in searched),
        *(f"tags.`{PREFIX}{name}`" for name in ("notice", "verdict", "reason")),
        f"metrics.`{RUNNING}`",
    ]
    goals = [
        better_direction(look_up(plan.metrics, name), name, plan.objectives, plan.answer)
        for name in plan.outcomes[:1]
    ]
    state = {
        "searchFilter": f"tags.`{PREFIX}kind` = 'arm'",
        "orderByKey": ESTIMATE,  # MLflow nests runs below their parents only when they are sorted by time
        "orderByAsc": goals == ["min"],
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": dict.fromkeys(columns, 150),
    }
    return f"deflate;{base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()}"
