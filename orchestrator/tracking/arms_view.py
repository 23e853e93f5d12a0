"""The view of a sweep's arms in the MLflow UI: which runs, in which order, with which columns.

MLflow keeps the columns of its table in the browser of whoever looks and takes none from an experiment. What
it takes is a shared view: a tag of the experiment, opened by a link that names it.
"""

import base64
import json
import zlib

from orchestrator.tracking.points import PREFIX

KEY = "haltsweep-arms"
"""Of the view, in links."""
TAG = f"mlflow.sharedViewState.{KEY}"
WIDTHS = {
    "metrics.`answer/estimate`": 135,
    "metrics.`answer/difference`": 145,
    "metrics.`answer/p`": 90,
    "metrics.`answer/n`": 85,
    f"tags.`{PREFIX}verdict`": 400,
    f"tags.`{PREFIX}reason`": 140,
}
"""Columns in their order, and pixels of each."""
_BEGIN = "deflate;"


def arms_view() -> str:
    """The tag's value: MLflow's own state of its page, as its button that shares a view writes it."""
    state = {
        "searchFilter": f"tags.`{PREFIX}kind` = 'arm'",
        # Sorted by anything but time, MLflow lists runs flat instead of below their parents.
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
    return _BEGIN + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()


def same_view(one: str | None, other: str) -> bool:
    """Whether both hold the same state, however they are compressed."""
    return one is not None and _state(one) == _state(other)


def _state(value: str) -> object:
    try:
        return json.loads(zlib.decompress(base64.b64decode(value.removeprefix(_BEGIN))))
    except (ValueError, zlib.error):
        return value
