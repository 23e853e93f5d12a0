"""What every MLflow run of a sweep should look like, computed from the log. Pure: knows no MLflow.

Statuses, chosen so that a colour in the UI means one thing:

- FINISHED: the trial gave a result that stands. A pruned trial is one of them: it was judged, not broken;
  its tag `haltsweep.outcome` says `pruned`.
- FAILED: diverged, out of memory, timed out or crashed; `haltsweep.outcome` and `haltsweep.reason` say which.
- KILLED: stopped, or its process is gone; it goes on with `haltsweep resume`.
- RUNNING: a living process holds the sweep and the trial is open.

An arm is FAILED where every confirm trial failed; where some did, `haltsweep.reason` counts them.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from orchestrator.identity import digest
from orchestrator.ledger.events import Event, EventKind, trial_from_json
from orchestrator.ledger.fold import measurement_of
from orchestrator.plan.types import Arm, Plan
from orchestrator.trials import OutcomeKind, Trial
from search_spaces.paths import leaves
from search_spaces.wording import amount, markdown_line, markdown_text, visible
from trainables.protocol import Measurement

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
SWEEP = "sweep"
PREFIX = "haltsweep."
NOT_APPLICABLE = "-"
MAX_NAME = 250
"""Characters of a name in MLflow."""
MAX_NOTE = 5000
"""Characters of a description, what is escaped counted in."""
MAX_TEXT = 1000
"""Characters of a reason that are kept in a tag; the ledger has all of them."""
GONE = "the process that ran the sweep is gone; `haltsweep resume` continues from the last checkpoint"


class Point(NamedTuple):
    """One value of a metric."""

    key: str
    value: float
    at_ms: int
    step: int


@dataclass(slots=True)
class DesiredRun:
    """One run as it should be; `points` are those heard since the desired was last written."""

    key: str
    """`sweep`, `arm/<name>` or `trial/<id>`."""
    parent: str | None
    name: str
    start_ms: int
    status: Status = "RUNNING"
    end_ms: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)


class DesiredRuns:
    """All runs of a sweep, kept up to date event by event; `dirty` are the keys to look at again."""

    def __init__(self, plan: Plan, ledger_uid: str) -> None:
        self._plan = plan
        self._ledger_uid = ledger_uid
        self._differing = _differing(plan.arms)
        self._trials: dict[str, Trial] = {}
        self._confirmed: dict[str, dict[str, OutcomeKind]] = {}
        self._last_ms = 0
        self._held = True
        self.runs: dict[str, DesiredRun] = {}
        self.dirty: dict[str, None] = {}
        """Keys in the order in which they must be written: parents first."""

    def hear(self, event: Event) -> None:
        """Take in the next event."""
        self._last_ms = max(self._last_ms, milliseconds(event.at))
        if SWEEP not in self.runs:
            self._begin(milliseconds(event.at))
        if event.kind is EventKind.OPENED:
            self._open(event)
        elif event.kind is EventKind.CLOSED:
            self._close(event)
        elif event.kind is EventKind.ASKED:
            trial = trial_from_json(event.payload)
            self._trials.setdefault(trial.trial_id, trial)
        elif event.kind is not EventKind.CHECKPOINTED:
            self._hear_trial(event)

    def hold(self, *, held: bool) -> None:
        """Say whether a living process holds the sweep: without one, nothing is running."""
        if held != self._held:
            self._held = held
            self.dirty |= dict.fromkeys(
                key for key, desired in self.runs.items() if desired.status == "RUNNING"
            )

    def seen(self, key: str) -> DesiredRun:
        """The run as it should be shown now: as heard, unless its process is gone."""
        desired = self.runs[key]
        if desired.status == "RUNNING" and not self._held:
            tags = desired.tags | {f"{PREFIX}outcome": OutcomeKind.STOPPED.value, f"{PREFIX}reason": GONE}
            return DesiredRun(
                key,
                desired.parent,
                desired.name,
                desired.start_ms,
                "KILLED",
                self._last_ms,
                tags,
                desired.params,
                desired.points,
            )
        return desired

    def publish(self, values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """Finite values by run key, for those arms that have a run."""
        keyed = {f"arm/{arm}": dict(metrics) for arm, metrics in values.items()}
        return {
            key: {metric_key(name): value for name, value in metrics.items() if math.isfinite(value)}
            for key, metrics in keyed.items()
            if key in self.runs
        }

    def publish_words(self, words: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """Tags by run key, for those arms that have a run."""
        keyed = {f"arm/{arm}": tags for arm, tags in words.items()}
        return {
            key: {metric_key(f"{PREFIX}{name}"): visible(_cut(text, MAX_TEXT)) for name, text in tags.items()}
            for key, tags in keyed.items()
            if key in self.runs
        }

    @property
    def last_ms(self) -> int:
        """Time of the newest event heard, Unix milliseconds."""
        return self._last_ms

    def _begin(self, start_ms: int) -> None:
        tags = self._tags("sweep")
        if self._plan.question:
            tags["mlflow.note.content"] = markdown_text(_cut(self._plan.question, MAX_TEXT))
        self._add(DesiredRun(SWEEP, None, self._plan.name, start_ms, tags=tags))
        for arm in self._plan.arms:
            self._add(self._arm_image(arm, start_ms))

    def _open(self, event: Event) -> None:
        tags = {f"{PREFIX}spec_digest": str(event.payload["spec_digest"])}
        if commit := event.payload["provenance"].get("commit"):
            tags["mlflow.source.git.commit"] = commit
        self.runs[SWEEP].tags |= tags
        for key in self._parents():
            self._mark(key, "RUNNING", None, "running", NOT_APPLICABLE)

    def _close(self, event: Event) -> None:
        reason = event.payload["reason"]
        done = reason == "done"
        outcome = OutcomeKind.FINISHED if done else OutcomeKind.STOPPED
        for key in self._parents():
            self._mark(key, "FINISHED" if done else "KILLED", milliseconds(event.at), outcome.value, reason)
        for arm, ended in self._confirmed.items() if done else ():
            if any(kind.failed for kind in ended.values()):
                self._mark_failures(f"arm/{arm}", ended.values(), milliseconds(event.at))

    def _mark_failures(self, key: str, ended: Collection[OutcomeKind], end_ms: int) -> None:
        """An arm whose confirm trials failed is told by them; where none finished it has failed itself."""
        failed = Counter(kind.value for kind in ended if kind.failed)
        finished = sum(kind is OutcomeKind.FINISHED for kind in ended)
        words = ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items()))
        reason = f"{finished} of {amount(finished + failed.total(), 'confirm trial')} finished: {words}"
        outcome = OutcomeKind.FINISHED.value if finished else failed.most_common(1)[0][0]
        self._mark(key, "FINISHED" if finished else "FAILED", end_ms, outcome, reason)

    def _hear_trial(self, event: Event) -> None:
        assert event.trial_id is not None
        key = f"trial/{event.trial_id}"
        if event.kind is EventKind.ENDED and event.payload["kind"] == OutcomeKind.SKIPPED:
            return  # it never began: there is nothing to show
        if key not in self.runs:
            self._add(self._trial_image(self._trials[event.trial_id], milliseconds(event.at)))
        if event.kind is EventKind.STARTED:
            self._mark(key, "RUNNING", None, "running", NOT_APPLICABLE)
        elif event.kind is EventKind.MEASURED:
            self.runs[key].points += points_of(measurement_of(event), milliseconds(event.at))
            self.dirty[key] = None
        else:
            kind = OutcomeKind(event.payload["kind"])
            planned = self._trials[event.trial_id].planned
            if planned.phase == "confirm":
                self._confirmed.setdefault(planned.arm, {})[event.trial_id] = kind
            self._mark(key, status_of(kind), milliseconds(event.at), kind.value, event.payload["reason"])

    def _mark(self, key: str, status: Status, end_ms: int | None, outcome: str, reason: str) -> None:
        desired = self.runs[key]
        desired.status, desired.end_ms = status, end_ms
        desired.tags |= {f"{PREFIX}outcome": outcome, f"{PREFIX}reason": visible(_cut(reason, MAX_TEXT))}
        self.dirty[key] = None

    def _add(self, desired: DesiredRun) -> None:
        self.runs[desired.key] = desired
        self.dirty[desired.key] = None

    def _parents(self) -> list[str]:
        return [SWEEP, *(f"arm/{arm.name}" for arm in self._plan.arms)]

    def _tags(self, kind: str, **values: object) -> dict[str, str]:
        applicable = {"sweep": self._plan.name, "ledger": self._ledger_uid, "kind": kind, **values}
        names = ("sweep", "ledger", "kind", "arm", "phase", "seed", "number", "trial", "outcome", "reason")
        return {f"{PREFIX}{name}": str(applicable.get(name, NOT_APPLICABLE)) for name in names}

    def _arm_image(self, arm: Arm, start_ms: int) -> DesiredRun:
        changes = [
            f"- `{change.path}`: {_change_text(change.before)} -> {_change_text(change.after)}"
            for change in arm.changes
        ]
        text = "\n".join([markdown_text(_cut(arm.why, MAX_TEXT)), *changes]).strip()
        tags = self._tags("arm", arm=arm.name)
        if text:
            tags["mlflow.note.content"] = _cut(text, MAX_NOTE)
        return DesiredRun(
            f"arm/{arm.name}",
            SWEEP,
            arm.name,
            start_ms,
            tags=tags,
            params=as_params(dict(leaves(arm.settings))),
        )

    def _trial_image(self, trial: Trial, start_ms: int) -> DesiredRun:
        planned = trial.planned
        tags = self._tags(
            "trial",
            arm=planned.arm,
            phase=planned.phase,
            seed=planned.seed,
            number=planned.number,
            trial=planned.trial_id,
        )
        # The settings in which arms differ, and what this trial chose: what one compares trials by.
        settings = {path: value for path, value in leaves(trial.settings) if path in self._differing}
        return DesiredRun(
            key=f"trial/{planned.trial_id}",
            parent=f"arm/{planned.arm}",
            name=f"{planned.arm} {planned.phase} {planned.number}",
            start_ms=start_ms,
            tags=tags,
            params=as_params({**settings, **trial.assignment, **planned.overrides, "seed": planned.seed}),
        )


def status_of(kind: OutcomeKind) -> Status:
    """The status of a trial that ended so."""
    if kind is OutcomeKind.STOPPED:
        return "KILLED"
    return "FAILED" if kind.failed else "FINISHED"


def points_of(measurement: Measurement, at_ms: int) -> list[Point]:
    """Finite values in the order of their names; the time is the event's, so that a resend is the same."""
    values = {**measurement.metrics, "time/seconds": measurement.seconds}
    return [
        Point(metric_key(name), float(value), at_ms, measurement.step)
        for name, value in sorted(values.items())
        if math.isfinite(value)
    ]


def metric_key(name: str) -> str:
    """A name that MLflow accepts: short, of letters and few signs, and no path that has a shorter form."""
    parts = re.sub(r"[^\w/.\- :]", "_", name).split("/")
    key = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if len(key) <= MAX_NAME:
        return key
    short = digest(name)
    return f"{key[: MAX_NAME - len(short) - 1]}_{short}"


def as_params(values: Mapping[str, Any]) -> dict[str, str]:
    """Names that MLflow accepts, and values as text: strings as they are, the rest as JSON."""
    return {metric_key(name): visible(_text(value)) for name, value in values.items()}


def milliseconds(at: float) -> int:
    """Unix milliseconds, MLflow's unit."""
    return round(at * 1000)


def batches(points: Iterable[Point], most: int) -> list[list[Point]]:
    """Parts of at most `most` points. A step is split only if it alone is larger.

    A part is stored whole or not at all, and parts go out in order: so the newest step of a metric in the
    store says exactly what is there.
    """
    found: list[list[Point]] = [[]]
    step: list[Point] = []
    for point in [*points, None]:
        if step and (point is None or point.step != step[0].step):
            if found[-1] and len(found[-1]) + len(step) > most:
                found.append([])
            found[-1] += step
            step = []
        if point is not None:
            step.append(point)
    return [part[at : at + most] for part in found for at in range(0, len(part), most)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _change_text(value: Any) -> str:
    return markdown_line(_cut(_text(value), MAX_NAME))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _differing(arms: Sequence[Arm]) -> frozenset[str]:
    """Dotted paths that are not the same in all arms, or not in all of them."""
    flats = [dict(leaves(arm.settings)) for arm in arms]
    paths = {path for flat in flats for path in flat}
    missing = object()
    return frozenset(path for path in paths if len({repr(flat.get(path, missing)) for flat in flats}) > 1)
