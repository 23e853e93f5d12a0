"""Compare every run in MLflow with the ledger: points, parameters, tags, status and datasets."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from orchestrator.files.findings import Finding
from orchestrator.tracking.mlflow.desired_runs import SWEEP, DesiredRun, DesiredRuns
from orchestrator.tracking.mlflow.mlflow_reading import StoredRun
from orchestrator.tracking.mlflow.mlflow_runs import MAX_PARAM
from orchestrator.tracking.mlflow.points import PREFIX, Point
from search_spaces.wording import amount

WHAT = "mlflow"
CHANGING = frozenset({f"{PREFIX}outcome", f"{PREFIX}reason"})
"""Tags that change while a sweep runs."""
SHOWN = 3
"""Maximum number of differences that a finding lists."""
Differences = Iterator[tuple[Literal["wrong", "missing", "unreported"], str]]
"""Kind and description of each difference.

A `missing` item may only be late. An `unreported` item is written with the next report.
"""


def compare(
    desired_runs: DesiredRuns,
    stored_runs: Sequence[StoredRun],
    means: Mapping[str, Mapping[str, float]],
    *,
    is_final: bool,
    sync: str,
) -> list[Finding]:
    """Return one finding per run that differs from the ledger, and one for all other runs.

    Args:
        desired_runs: Desired runs, from at least as many ledger events as MLflow contains.
        stored_runs: Runs in MLflow.
        means: Metrics of the arms in a report.
        is_final: Whether everything was written, so that a missing item is lost and not just late.
        sync: Command that brings MLflow up to date.
    """
    keys = Counter(stored.run.key for stored in stored_runs)
    ids = {stored.run.key: stored.run.run_id for stored in stored_runs}
    reported = desired_runs.summary_metrics(means)
    remedy = f"delete that run in MLflow, then `{sync}` makes it again from the ledger"
    findings = [
        Finding(WHAT, "damaged", f"{key} is there {count} times", f"`{sync}` deletes all but one")
        for key, count in keys.items()
        if count > 1
    ]
    behind = len(desired_runs.runs.keys() - keys.keys())
    for stored in stored_runs:
        key, name = stored.run.key, f"run {stored.run.run_id} ({stored.run.key})"
        if key not in desired_runs.runs:
            findings.append(Finding(WHAT, "damaged", f"{name}: nothing in the ledger is called so", remedy))
            continue
        desired = desired_runs.current(key)
        parent = ids.get(desired.parent) if desired.parent is not None else None
        at_close = desired_runs.at_close.get(key, ())
        differing = list(differences(desired, stored, parent, reported.get(key, {}), at_close))
        # If a process died before it closed a run, the last points of that run may be missing, too.
        complete = is_final and desired_runs.runs[key].status != "RUNNING"
        damage = [text for kind, text in differing if kind == "wrong" or (complete and kind == "missing")]
        if damage:
            findings.append(Finding(WHAT, "damaged", f"{name}: {_listed(damage)}", remedy))
        elif differing:
            behind += 1
    points = sum(len(history) for stored in stored_runs for history in stored.histories.values())
    text = f"{amount(len(stored_runs), 'run')} with {amount(points, 'point')} compared with the ledger"
    if behind:
        findings.append(Finding(WHAT, "behind", f"{text}, {behind} of them behind", f"`{sync}` catches up"))
    return findings or [Finding(WHAT, "sound", text)]


def differences(
    desired: DesiredRun,
    kept: StoredRun,
    parent: str | None,
    means: Mapping[str, float],
    at_close: Sequence[Point] = (),
) -> Differences:
    """Yield the differences between a run in MLflow and its desired state.

    Args:
        desired: Desired state of the run.
        kept: The run in MLflow.
        parent: Id of the parent run in MLflow.
        means: Metrics of the arm in a report, compared with the newest point of each metric.
        at_close: Points that are written with a report.
    """
    reported = {*means, *(point.key for point in at_close)}
    yield from _points([*desired.points, *at_close], kept, reported, retried=bool(desired.retried_ms))
    for name, mean in means.items():
        if name not in kept.histories or kept.histories[name][-1][1] != mean:
            yield "unreported", f"{name} is not as reported"
    for name, value in desired.params.items():
        stored = kept.run.params.get(name)
        if stored is None:
            yield "missing", f"parameter {name} is missing"
        elif stored != value[:MAX_PARAM]:
            yield "wrong", f"parameter {name} is {stored!r}, the ledger says {value[:MAX_PARAM]!r}"
    for name in kept.run.params.keys() - desired.params.keys():
        yield "wrong", f"parameter {name} is in no trial"
    for name, value in (
        desired.tags | ({"mlflow.parentRunId": parent} if parent is not None else {})
    ).items():
        if (tag := kept.run.tags.get(name)) != value:
            is_late = tag is None or name in CHANGING or desired.key == SWEEP
            yield "missing" if is_late else "wrong", f"tag {name} is {tag!r}, the ledger says {value!r}"
    if (kept.run.status, kept.run.end_ms) != (desired.status, desired.end_ms or kept.run.end_ms):
        yield "missing", f"status is {kept.run.status}, the ledger says {desired.status}"
    wanted = {dataset[:3] for dataset in desired.inputs}
    for name, digest, context in sorted(wanted - kept.run.inputs):
        yield "missing", f"dataset {name} ({context}, {digest}) is missing"
    for name, digest, context in sorted(kept.run.inputs - wanted) if wanted else ():
        yield "wrong", f"dataset {name} ({context}, {digest}) is none that was read"


def _points(
    points: Sequence[Point], stored: StoredRun, metric_names: set[str], *, retried: bool
) -> Differences:
    expected: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        expected.setdefault(point.key, []).append((point.step, point.value))
    for name in sorted(expected.keys() | stored.histories.keys()):
        history, wanted = stored.histories.get(name, []), sorted(expected.get(name, []))
        if name in metric_names and not wanted:
            continue
        # A retried trial may have measured earlier steps again.
        is_part = Counter(history) <= Counter(wanted) if retried else history == wanted[: len(history)]
        if not is_part:
            yield "wrong", f"points of {name} differ"
        elif len(history) < len(wanted):
            lacking = amount(len(wanted) - len(history), "point")
            yield "unreported" if name in metric_names else "missing", f"{name} lacks {lacking}"


def _listed(texts: Sequence[str]) -> str:
    num_hidden = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {num_hidden} more" if num_hidden > 0 else "")
