"""The view of a sweep's arms in the MLflow UI: which runs, in which order, with which columns.

MLflow takes no columns from an experiment. In the source of its page (3.17.2) they begin with fixed ones or
those of the browser's storage, which only `viewStateShareKey` of the address replaces; it names a shared
view, a tag of the experiment. MLflow's own list of experiments links to pages without it, and in a new
browser the page for agents comes first, whatever kind the experiment has. So that who comes from that list is
one click away, the view stands there twice more: as a link in the experiment's description, which heads each
of its pages, and by its name in the menu "Views" of its runs, which older versions of MLflow do not have.
"""

import base64
import json
import zlib
from collections.abc import Mapping

from orchestrator.tracking.mlflow.points import PREFIX
from orchestrator.tracking.mlflow.running_time import KEY as RUNNING

KEY = "haltsweep-arms"
"""Of the view, in links."""
SHARED = "mlflow.sharedViewState."
TAG = f"{SHARED}{KEY}"
NAMED_TAG = f"{SHARED}{KEY}-named"
"""The same view with a name: what versions of MLflow without named views cannot open."""
NAME = "arms: estimate, difference, p, n, verdict"
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
"""Columns in their order, and pixels of each.

Metrics first: side by side they have one heading. What must be known before a verdict stands before it.
"""
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


def view_tags(experiment_id: str, present: Mapping[str, str]) -> dict[str, str]:
    """Tags that the experiment lacks of those `present`; a description that somebody wrote is kept."""
    state = arms_view()
    found = {} if same_view(present.get(TAG), state) else {TAG: state}
    if not _names(present.get(NAMED_TAG), state):
        # A fixed time: what is sent again must not look newer.
        named = {"name": NAME, "createdAt": 0, "updatedAt": 0, "state": state}
        found[NAMED_TAG] = json.dumps(named)
    page = f"#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&workflowType=machine_learning"
    note = f"{_NOTE}[open]({page})"
    if present.get(NOTE_TAG, "") != note and present.get(NOTE_TAG, _NOTE).startswith(_NOTE):
        found[NOTE_TAG] = note
    return found


def _names(value: str | None, state: str) -> bool:
    """Whether a named view has our name and state."""
    try:
        named = json.loads(value or "")
    except ValueError:
        return False
    return isinstance(named, dict) and named.get("name") == NAME and same_view(named.get("state"), state)


def same_view(one: str | None, other: str) -> bool:
    """Whether both hold the same state, however they are compressed."""
    return one is not None and _state(one) == _state(other)


def _state(value: str) -> object:
    try:
        return json.loads(zlib.decompress(base64.b64decode(value.removeprefix(_BEGIN))))
    except (ValueError, zlib.error):
        return value
