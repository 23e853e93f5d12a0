"""Compare every run in MLflow with the ledger: points, parameters, tags, status and datasets."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from orchestrator.files.findings import Finding
from orchestrator.tracking.mlflow.desired_runs import SWEEP, DesiredRun, DesiredRuns
from orchestrator.tracking.mlflow.mlflow_reading import StoredRun
from orchestrator.tracking.mlflow.points import PREFIX, Point
from search_spaces.wording import amount

CHECK_NAME = "mlflow"
CHANGING = frozenset({f"{PREFIX}outcome", f"{PREFIX}reason"})
"""Tags that change while a sweep runs."""
MAX_DIFFERENCES = 3
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
    """Return one finding for each run that differs from the ledger, and one for all other runs together.

    Args:
        desired_runs: Desired runs, from at least as many ledger events as MLflow contains.
        stored_runs: Runs in MLflow.
        means: Metrics of the arms in a report.
        is_final: Whether everything was written, so that a missing item is lost and not just late.
        sync: Command that brings MLflow up to date.
    """
    keys = Counter(stored_run.run.key for stored_run in stored_runs)
    ids = {stored_run.run.key: stored_run.run.run_id for stored_run in stored_runs}
    expected_means = desired_runs.summary_metrics(means)
    remedy = f"delete that run in MLflow, then `{sync}` makes it again from the ledger"
    findings = [
        Finding(CHECK_NAME, "damaged", f"{key} is there {count} times", f"`{sync}` deletes all but one")
        for key, count in keys.items()
        if count > 1
    ]
    behind = len(desired_runs.runs.keys() - keys.keys())
    for stored_run in stored_runs:
        key, name = stored_run.run.key, f"run {stored_run.run.run_id} ({stored_run.run.key})"
        if key not in desired_runs.runs:
            findings.append(Finding(CHECK_NAME, "damaged", f"{name}: the ledger has no such run", remedy))
            continue
        desired = desired_runs.current(key)
        parent = ids.get(desired.parent) if desired.parent is not None else None
        at_close = desired_runs.at_close.get(key, ())
        means_of_arm = expected_means.get(key, {})
        run_differences = list(differences(desired, stored_run, parent, means_of_arm, at_close))
        # If a process died before it closed a run, the last points of that run may be missing, too.
        is_complete = is_final and desired_runs.runs[key].status != "RUNNING"
        damage = [
            text for kind, text in run_differences if kind == "wrong" or (is_complete and kind == "missing")
        ]
        if damage:
            hidden_text = (
                f"; and {len(damage) - MAX_DIFFERENCES} more" if len(damage) > MAX_DIFFERENCES else ""
            )
            text = f"{name}: {'; '.join(damage[:MAX_DIFFERENCES])}{hidden_text}"
            findings.append(Finding(CHECK_NAME, "damaged", text, remedy))
        elif run_differences:
            behind += 1
    points = sum(len(history) for stored_run in stored_runs for history in stored_run.histories.values())
    text = f"{amount(len(stored_runs), 'run')} with {amount(points, 'point')} compared with the ledger"
    if behind:
        findings.append(
            Finding(CHECK_NAME, "behind", f"{text}, {behind} of them behind", f"`{sync}` catches up")
        )
    return findings or [Finding(CHECK_NAME, "sound", text)]


def differences(
    desired: DesiredRun,
    stored_run: StoredRun,
    parent: str | None,
    means: Mapping[str, float],
    at_close: Sequence[Point] = (),
) -> Differences:
    """Yield the differences between a run in MLflow and its desired state.

    Args:
        desired: Desired state of the run.
        stored_run: The run in MLflow.
        parent: Id of the parent run in MLflow.
        means: Metrics of the arm in a report, compared with the newest point of each metric.
        at_close: Points that are written with a report.
    """
    run, retried = stored_run.run, bool(desired.retried_ms)
    reported = {*means, *(point.key for point in at_close)}
    yield from _points([*desired.points, *at_close], stored_run, reported, retried=retried)
    for name, mean in means.items():
        if name not in stored_run.histories or stored_run.histories[name][-1][1] != mean:
            yield "unreported", f"{name} is not as reported"
    for name, value in desired.params.items():
        stored_value = run.params.get(name)
        if stored_value is None:
            yield "missing", f"parameter {name} is missing"
        elif stored_value != value:
            yield "wrong", f"parameter {name} is {stored_value!r}, the ledger says {value!r}"
    for name in run.params.keys() - desired.params.keys():
        yield "wrong", f"no trial has parameter {name}"
    parent_tags = {"mlflow.parentRunId": parent} if parent is not None else {}
    for name, value in (desired.tags | parent_tags).items():
        if (tag := run.tags.get(name)) != value:
            is_late = tag is None or name in CHANGING or desired.key == SWEEP
            yield "missing" if is_late else "wrong", f"tag {name} is {tag!r}, the ledger says {value!r}"
    if (run.status, run.end_ms) != (desired.status, desired.end_ms or run.end_ms):
        yield "missing", f"status is {run.status}, the ledger says {desired.status}"
    expected_inputs = {dataset[:3] for dataset in desired.inputs}
    for name, digest, context in sorted(expected_inputs - run.inputs):
        yield "missing", f"dataset {name} ({context}, {digest}) is missing"
    for name, digest, context in sorted(run.inputs - expected_inputs) if expected_inputs else ():
        yield "wrong", f"no trial read dataset {name} ({context}, {digest})"


def _points(
    points: Sequence[Point], stored_run: StoredRun, metric_names: set[str], *, retried: bool
) -> Differences:
    expected: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        expected.setdefault(point.key, []).append((point.step, point.value))
    for name in sorted(expected.keys() | stored_run.histories.keys()):
        history, wanted = stored_run.histories.get(name, []), sorted(expected.get(name, []))
        if name in metric_names and not wanted:
            continue
        # A retried trial may have measured earlier steps again.
        is_part = history == wanted[: len(history)] or (retried and Counter(history) <= Counter(wanted))
        if not is_part:
            yield "wrong", f"points of {name} differ"
        elif len(history) < len(wanted):
            missing_text = amount(len(wanted) - len(history), "point")
            yield "unreported" if name in metric_names else "missing", f"{name} lacks {missing_text}"
