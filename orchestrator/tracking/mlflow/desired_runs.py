"""Compute from the ledger the desired state of every MLflow run of a sweep, without using MLflow.

Statuses, chosen so that a colour in the UI has one meaning:

- FINISHED: the trial has a result. A pruned trial is finished, too; its tag `haltsweep.outcome` is `pruned`.
- FAILED: the trial diverged, ran out of memory, timed out or crashed; see the tags `haltsweep.outcome` and
`haltsweep.reason`.
- KILLED: the trial was stopped, or its process died; `haltsweep resume` continues it.
- RUNNING: a living process holds the sweep and the trial is open.

An arm is FAILED if every confirm trial failed; if only some did, `haltsweep.reason` counts them. An arm
starts with the first of its trials and ends with the last. Its metric `time/running_seconds` is the time in
which trials ran, without the time between two sessions. It has the averaged learning curves of its confirm
trials.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal

from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.ledger.fold import read_measurement
from orchestrator.plan.types import Arm, Plan
from orchestrator.spec.scopes import CountedReports
from orchestrator.tracking.curves import ArmCurves
from orchestrator.tracking.inputs import Input, Inputs, inputs_for
from orchestrator.tracking.mlflow.points import (
    MAX_NAME,
    PREFIX,
    Point,
    finite_points,
    metric_key,
    milliseconds,
    original_names,
)
from orchestrator.tracking.mlflow.running_time import RunningTime
from orchestrator.trials import OutcomeKind, PlannedTrial, Trial, numbered
from search_spaces.paths import leaves
from search_spaces.wording import amount, escape_unprintable, markdown_line, markdown_text
from trainables.protocol import Measurement

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
SWEEP = "sweep"
NOT_APPLICABLE = "-"
MAX_PARAM = 6000
"""Maximum number of characters of a parameter in MLflow."""
MAX_NOTE = 5000
"""Maximum number of characters of a description, after escaping."""
MAX_TEXT = 1000
"""Maximum number of characters of a reason in a tag; the ledger has the full text."""
KILLED_REASON = (
    "the process that ran the sweep is gone; `haltsweep resume` continues from the last checkpoint"
)


@dataclass(slots=True)
class DesiredRun:
    """Desired state of one run."""

    key: str
    """Key of the run: `sweep`, `arm/<name>` or `trial/<id>`."""
    parent: str | None
    name: str
    start_ms: int
    status: Status = "RUNNING"
    end_ms: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    """Points since the run was last written."""
    retried_ms: int = 0
    """Time of the last retry, in Unix milliseconds.

    Later measurements overwrite earlier ones of the same step.
    """
    inputs: tuple[Input, ...] = ()


class DesiredRuns:
    """Desired state of all runs of a sweep, updated event by event."""

    def __init__(self, plan: Plan, ledger_uid: str, inputs: Inputs = MappingProxyType({})) -> None:
        self._plan = plan
        self._ledger_uid = ledger_uid
        self._inputs = inputs
        self._differing = _differing(plan.arms)
        self._trials: dict[str, Trial] = {}
        self._confirmed: dict[str, dict[str, OutcomeKind]] = {}
        """Outcomes of ended confirm trials, by arm and trial."""
        self._curves = {arm.name: ArmCurves() for arm in plan.arms}
        self._counted: dict[str, CountedReports] = {}
        self._running = {arm.name: RunningTime() for arm in plan.arms}
        self._to_go = Counter(trial.arm for trial in plan.trials)
        self._source: dict[str, str] = {}
        self._last_ms = 0
        self._held = True
        self.runs: dict[str, DesiredRun] = {}
        self.at_close: dict[str, list[Point]] = {}
        """Curves and running times of arms, by key of the run.

        They are written after a report's metrics, since MLflow displays metrics in the order of writing.
        """
        self.dirty: dict[str, None] = {}
        """Keys of changed runs in the order of writing: parents first."""

    def apply(self, event: Event) -> None:
        """Add the next event."""
        self._last_ms = max(self._last_ms, milliseconds(event.at))
        if SWEEP not in self.runs:
            self._begin(milliseconds(event.at))
        if event.kind is EventKind.OPENED:
            self._open(event)
        elif event.kind is EventKind.CLOSED:
            self._close(event)
        elif event.kind is EventKind.PARAMS_ASSIGNED:
            self._plan_trial(trial_from_json(event.payload))
        elif event.kind is EventKind.RETRIED:
            self._reopen_run(event)
        elif event.kind not in {EventKind.CHECKPOINTED, EventKind.EXAMPLES, EventKind.DATA_BUILT}:
            self._fold_trial_event(event)

    def _plan_trial(self, trial: Trial) -> None:
        self._trials.setdefault(trial.trial_id, trial)
        if (run := self.runs.get(f"trial/{trial.trial_id}")) is not None:
            # MLflow cannot change the value of a parameter, so the existing params are retained.
            run.params = self._trial_run(trial, run.start_ms).params | run.params

    def set_locked(self, *, is_locked: bool) -> None:
        """Set whether a living process holds the sweep; if none does, no run is RUNNING."""
        if is_locked != self._held:
            self._held = is_locked
            running = (key for key, run in self.runs.items() if run.status == "RUNNING")
            self.dirty |= dict.fromkeys(running)

    def current(self, key: str) -> DesiredRun:
        """Return the current state of a run: KILLED if it was running and its process died."""
        desired = self.runs[key]
        if desired.status != "RUNNING" or self._held:
            return desired
        tags = desired.tags | {
            f"{PREFIX}outcome": OutcomeKind.STOPPED.value,
            f"{PREFIX}reason": KILLED_REASON,
        }
        return replace(desired, status="KILLED", end_ms=self._last_ms, tags=tags)

    def summary_metrics(self, values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """Return the finite metrics of arms that have a run, by the key of the run."""
        return {
            f"arm/{arm}": {metric_key(name): value for name, value in metrics.items() if math.isfinite(value)}
            for arm, metrics in values.items()
            if f"arm/{arm}" in self.runs
        }

    def summary_tags(self, texts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """Return the tags of arms that have a run, by the key of the run."""
        return {
            f"arm/{arm}": {metric_key(f"{PREFIX}{name}"): _tag(text) for name, text in tags.items()}
            for arm, tags in texts.items()
            if f"arm/{arm}" in self.runs
        }

    @property
    def last_ms(self) -> int:
        """Time of the newest event in Unix milliseconds."""
        return self._last_ms

    def _begin(self, start_ms: int) -> None:
        tags = self._tags("sweep")
        if self._plan.question:
            tags["mlflow.note.content"] = markdown_text(_shorten(self._plan.question, MAX_TEXT))
        self._add(DesiredRun(SWEEP, None, self._plan.name, start_ms, tags=tags))

    def _open(self, event: Event) -> None:
        for running_time in self._running.values():
            running_time.running.clear()
        self._source = source_tags(event.payload["provenance"])
        self.runs[SWEEP].tags |= {f"{PREFIX}spec_digest": str(event.payload["spec_digest"]), **self._source}
        self._mark(SWEEP, "RUNNING", None, "running", NOT_APPLICABLE)
        self._mark_arms()

    def _close(self, event: Event) -> None:
        reason, at_ms = event.payload["reason"], milliseconds(event.at)
        is_done = reason == "done"
        outcome = OutcomeKind.FINISHED if is_done else OutcomeKind.STOPPED
        self._mark(SWEEP, "FINISHED" if is_done else "KILLED", at_ms, outcome.value, reason)
        for arm in self._plan.arms if is_done else ():
            if f"arm/{arm.name}" not in self.runs:  # none of its trials had to run
                self._add(self._arm_run(arm, at_ms))
            if points := [*self._curves[arm.name].points(at_ms), *self._running[arm.name].points(at_ms)]:
                self.at_close.setdefault(f"arm/{arm.name}", []).extend(points)
        self._mark_arms()

    def _mark_arms(self) -> None:
        for arm in self._plan.arms:
            if f"arm/{arm.name}" in self.runs:
                self._mark_arm(arm.name)

    def _mark_arm(self, arm: str) -> None:
        """Set an arm's status: that of the sweep while trials are open, then that of its confirm trials."""
        key, sweep = f"arm/{arm}", self.runs[SWEEP]
        ends = [run.end_ms for run in self.runs.values() if run.parent == key and run.end_ms is not None]
        kinds = self._confirmed.get(arm, {}).values()
        failed_counts = Counter(kind.value for kind in kinds if kind.is_failure)
        if self._to_go[arm] > 0:
            end_ms = None if sweep.status == "RUNNING" else max(ends, default=sweep.end_ms)
            outcome, reason = (sweep.tags[f"{PREFIX}{name}"] for name in ("outcome", "reason"))
            self._mark(key, sweep.status, end_ms, outcome, reason)
            return
        status: Status = "FINISHED"
        outcome, reason = OutcomeKind.FINISHED.value, "done"
        if failed_counts:
            num_finished = sum(kind is OutcomeKind.FINISHED for kind in kinds)
            words = ", ".join(f"{count} {kind}" for kind, count in sorted(failed_counts.items()))
            num_ended = num_finished + failed_counts.total()
            reason = f"{num_finished} of {amount(num_ended, 'confirm trial')} finished: {words}"
            if not num_finished:
                status, outcome = "FAILED", failed_counts.most_common(1)[0][0]
        # MLflow cannot change the value of a parameter, so the existing params are retained.
        self.runs[key].params = self._chosen_params(arm) | self.runs[key].params
        self._mark(key, status, max(ends, default=self.runs[key].start_ms), outcome, reason)

    def _chosen_params(self, arm: str) -> dict[str, str]:
        """Return the confirmed values of every searched field, e.g. `0.5, 0.7` for two repeats."""
        outcomes = self._confirmed.get(arm, {}).items()
        trials = [self._trials[trial_id] for trial_id, kind in outcomes if kind is OutcomeKind.FINISHED]
        trials.sort(key=lambda trial: (trial.planned.repeat, trial.planned.rank))
        params: dict[str, str] = {}
        for path in self._plan.arm(arm).space.paths:
            values = [trial.assignment[path] for trial in trials if path in trial.assignment]
            if values:
                params[path] = ", ".join(dict.fromkeys(map(_short_text, values)))
        return as_params(params)

    def _reopen_run(self, event: Event) -> None:
        """Reopen the run of a retried trial."""
        assert event.trial_id is not None
        key, planned = f"trial/{event.trial_id}", self._trials[event.trial_id].planned
        self._to_go[planned.arm] += 1
        self._confirmed.get(planned.arm, {}).pop(event.trial_id, None)
        if f"arm/{planned.arm}" in self.runs:
            self._mark_arm(planned.arm)
        if "cause" in event.payload:  # the trial will be planned again, perhaps with other settings
            del self._trials[event.trial_id]
        else:
            self.runs[key].retried_ms = milliseconds(event.at)

    def _fold_trial_event(self, event: Event) -> None:
        assert event.trial_id is not None
        key, planned = f"trial/{event.trial_id}", self._trials[event.trial_id].planned
        at_ms = milliseconds(event.at)
        is_skipped = event.kind is EventKind.ENDED and event.payload["kind"] == OutcomeKind.SKIPPED
        if key not in self.runs and not is_skipped:  # a skipped trial never started
            if f"arm/{planned.arm}" not in self.runs:
                self._add(self._arm_run(self._plan.arm(planned.arm), at_ms))
                self._mark_arm(planned.arm)
            self._add(self._trial_run(self._trials[event.trial_id], at_ms))
        running_time = self._running[planned.arm]
        running_time.observe(at_ms)
        if event.kind is EventKind.ATTRIBUTES:
            self.runs[key].tags |= text_tags(event.payload)
            self.dirty[key] = None
        elif event.kind is EventKind.STARTED:
            running_time.running.add(event.trial_id)
            self._mark(key, "RUNNING", None, "running", NOT_APPLICABLE)
        elif event.kind is EventKind.MEASURED:
            measurement = self._add_counted_values(read_measurement(event), planned)
            for named_key in (f"arm/{planned.arm}", key):
                self.runs[named_key].tags |= original_names(measurement.metrics)
                self.dirty[named_key] = None
            self.runs[key].points += finite_points(measurement, at_ms)
            if planned.phase == "confirm" and planned.rank == 0:
                self._curves[planned.arm].add(event.trial_id, measurement)
        else:
            running_time.running.discard(event.trial_id)
            self._fold_end(key, event, skipped=is_skipped)

    def _add_counted_values(self, measurement: Measurement, planned: PlannedTrial) -> Measurement:
        """Add the value of each objective over earlier reports, e.g. as `valid/accuracy.best`.

        Only objectives whose scope is not the last report are added.
        """
        objectives = self._plan.search.objectives if self._plan.search is not None else ()
        unusual = [objective for objective in objectives if objective.scope != "last"]
        if planned.phase != "search" or not unusual:
            return measurement
        reports = self._counted.setdefault(planned.trial_id, CountedReports(objectives))
        reports.add(measurement)
        if reports.measurement is None or not (values := reports.measurement.metrics):
            return measurement
        counted = {f"{each.metric}.{each.scope}": values[each.metric] for each in unusual}
        return replace(measurement, metrics={**counted, **measurement.metrics})

    def _fold_end(self, key: str, event: Event, *, skipped: bool) -> None:
        assert event.trial_id is not None
        planned, kind = self._trials[event.trial_id].planned, OutcomeKind(event.payload["kind"])
        if not skipped:
            if planned.phase == "confirm":
                self._confirmed.setdefault(planned.arm, {})[event.trial_id] = kind
            self._mark(key, mlflow_status(kind), milliseconds(event.at), kind.value, event.payload["reason"])
        if kind.is_final:
            self._curves[planned.arm].end(event.trial_id, finished=kind is OutcomeKind.FINISHED)
            self._to_go[planned.arm] -= kind is not OutcomeKind.INFEASIBLE
            if not self._to_go[planned.arm] and f"arm/{planned.arm}" in self.runs:
                self._mark_arm(planned.arm)

    def _mark(self, key: str, status: Status, end_ms: int | None, outcome: str, reason: str) -> None:
        desired = self.runs[key]
        desired.status, desired.end_ms = status, end_ms
        desired.tags |= {f"{PREFIX}outcome": outcome, f"{PREFIX}reason": _tag(reason)}
        self.dirty[key] = None

    def _add(self, desired: DesiredRun) -> None:
        self.runs[desired.key] = desired
        self.dirty[desired.key] = None

    def _tags(self, kind: str, **values: object) -> dict[str, str]:
        applicable = {"sweep": self._plan.name, "ledger": self._ledger_uid, "kind": kind, **values}
        names = ("sweep", "ledger", "kind", "arm", "phase", "seed", "number", "trial", "outcome", "reason")
        return {f"{PREFIX}{name}": str(applicable.get(name, NOT_APPLICABLE)) for name in names}

    def _arm_run(self, arm: Arm, start_ms: int) -> DesiredRun:
        changes = [
            f"- `{change.path}`: {_change_text(change.before)} -> {_change_text(change.after)}"
            for change in arm.changes
        ]
        text = "\n".join([markdown_text(_shorten(arm.why, MAX_TEXT)), *changes]).strip()
        tags = self._tags("arm", arm=arm.name) | self._source
        if text:
            tags["mlflow.note.content"] = _shorten(text, MAX_NOTE)
        params = {path: value for path, value in leaves(arm.settings) if path not in arm.space.paths}
        return DesiredRun(
            f"arm/{arm.name}",
            SWEEP,
            arm.name,
            start_ms,
            tags=tags,
            params=as_params(params),
            inputs=inputs_for(self._inputs, arm.settings),
        )

    def _trial_run(self, trial: Trial, start_ms: int) -> DesiredRun:
        planned = trial.planned
        values = {name: getattr(planned, name) for name in ("arm", "phase", "seed", "number")}
        tags = self._tags("trial", trial=planned.trial_id, **values) | self._source
        # Users compare trials by params and by the settings in which arms differ.
        settings = {path: value for path, value in leaves(trial.settings) if path in self._differing}
        identity = {"seed": planned.seed} | ({"repeat": planned.repeat} if self._plan.repeats > 1 else {})
        return DesiredRun(
            key=f"trial/{planned.trial_id}",
            parent=f"arm/{planned.arm}",
            name=f"{planned.arm} {planned.phase} {numbered(planned.repeat, planned.number)}",
            start_ms=start_ms,
            tags=tags,
            params=as_params({**settings, **trial.assignment, **planned.overrides, **identity}),
            inputs=inputs_for(self._inputs, trial.settings, planned.phase, trial.splits),
        )


def mlflow_status(kind: OutcomeKind) -> Status:
    """Return the status of a trial with this outcome."""
    if kind is OutcomeKind.STOPPED:
        return "KILLED"
    return "FAILED" if kind.is_failure else "FINISHED"


def text_tags(texts: Mapping[str, str]) -> dict[str, str]:
    """Return reported texts as tags; names reserved by MLflow or haltsweep get a prefix."""
    prefixes = {name: "text." * name.startswith(("mlflow.", PREFIX)) for name in texts}
    return {metric_key(f"{prefixes[name]}{name}"): _tag(text) for name, text in texts.items()}


def _tag(text: str) -> str:
    return escape_unprintable(_shorten(text, MAX_TEXT))


def as_params(values: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters with names and lengths that MLflow accepts; values other than strings become JSON."""
    return {metric_key(name): escape_unprintable(_text(value))[:MAX_PARAM] for name, value in values.items()}


def source_tags(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return MLflow's own tags for the source of a run: command without folders, commit."""
    program, *arguments = provenance.get("command") or [""]
    # MLflow displays the part of a source after the last slash.
    command = " ".join(PurePath(argument).name for argument in (program, *arguments)).strip()
    tags = {
        "mlflow.source.name": escape_unprintable(_shorten(command, MAX_NAME)),
        "mlflow.source.type": "LOCAL",
    }
    if commit := provenance.get("commit"):
        tags["mlflow.source.git.commit"] = str(commit)
    return tags if command else {key: value for key, value in tags.items() if key.endswith("commit")}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _short_text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else _text(value)


def _change_text(value: Any) -> str:
    return markdown_line(_shorten(_text(value), MAX_NAME))


def _shorten(text: str, maximum: int) -> str:
    return text if len(text) <= maximum else text[: maximum - 1] + "…"


def _differing(arms: Sequence[Arm]) -> frozenset[str]:
    """Return the dotted paths that differ between arms or are missing in some arms."""
    flats = [dict(leaves(arm.settings)) for arm in arms]
    paths = {path for flat in flats for path in flat}
    missing = object()
    return frozenset(path for path in paths if len({repr(flat.get(path, missing)) for flat in flats}) > 1)
