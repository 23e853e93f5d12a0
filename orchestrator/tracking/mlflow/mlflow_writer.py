"""Brings MLflow in line with the log: compares what each run should be with what is there, writes the rest.

Correct from any starting point, because nothing but the store itself says what was written: after a crash of
the writer, a deleted database or an outage, a new writer finds out and writes what is missing, once.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from orchestrator.files.file_digests import read_sound
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import Inputs
from orchestrator.tracking.mlflow.desired_runs import NOT_APPLICABLE, SWEEP, DesiredRun, DesiredRuns
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, Stored
from orchestrator.tracking.mlflow.points import PREFIX, Point
from orchestrator.tracking.summary import ArmSummary
from search_spaces.wording import amount

NOTICE_TAG = f"{PREFIX}notice"
"""What must be known before an arm's verdict, as `report.summary.arm_tags` names it."""
NONE_LOGGED = (-1, 0.0, 0)
"""Default for a metric without stored points."""
EVENTS_AT_ONCE = 5000
"""Bounds the memory of a rebuild."""
OnAsk = Callable[[str], None]
"""Called before MLflow is asked for something, with what it is and how much is left."""


@dataclass(slots=True)
class Counts:
    """What was written."""

    runs: int = 0
    points: int = 0
    params: int = 0
    tags: int = 0
    endings: int = 0
    files: int = 0
    inputs: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Counts)))

    def __str__(self) -> str:
        named = [f"{getattr(self, one.name)} {one.name}" for one in fields(Counts) if getattr(self, one.name)]
        return f"{', '.join(named)} written" if named else "all was up to date"

    @property
    def total(self) -> int:
        """0 if everything was up to date."""
        return sum(getattr(self, one.name) for one in fields(Counts))


class MlflowWriter:
    """One sweep's runs in MLflow. After an Outage it is useless: make a new one."""

    def __init__(
        self,
        uri: str,
        plan: Plan,
        ledger: Ledger,
        artifacts: Path,
        on_progress: OnAsk = lambda _: None,
        *,
        inputs: Inputs = MappingProxyType({}),
    ) -> None:
        """Connect and find the runs that are there. Raises InputError, Outage."""
        self._on_progress = on_progress
        self._on_progress("looking up what is in MLflow")
        self._ledger = ledger
        self._store = RunStore(uri, plan.name, artifacts)
        self._desired = DesiredRuns(plan, ledger.uid, inputs)
        self._stored = self._store.search(ledger.uid)
        self._counts = Counts()
        self.position = 0
        """The newest event that is in MLflow."""

    def update(self) -> Counts:
        """Write all that happened since the last call. Raises Outage."""
        self._counts = Counts()
        # Asked first: an ending written by a holder that has gone since is then read below.
        held = self._ledger.held()
        events = self._ledger.events(self.position)
        while some := list(islice(events, EVENTS_AT_ONCE)):
            for event in some:
                self._desired.hear(event)
            self.position = some[-1].seq or self.position
            if len(some) == EVENTS_AT_ONCE:
                self._spill()
        self._desired.hold(held=held)
        self._write()
        self._close_strangers()
        return self._counts

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def publish(self, summary: ArmSummary) -> Counts:
        """Metrics and tags of the arms' runs; a changed value is a new step. Then their curves and how
        long they ran. Raises Outage."""
        self._counts = Counts()
        for key, tags in self._desired.publish_words(summary.tags).items():
            stored = self._stored[key]
            # A notice that holds no longer is taken back.
            old = {NOTICE_TAG: NOT_APPLICABLE} if NOTICE_TAG in stored.tags else {}
            self._fill(stored, (), {}, old | tags)
        published = self._desired.publish(summary.metrics)
        for number, (key, metrics) in enumerate(published.items()):
            self._on_progress(f"the arms' means: {amount(len(published) - number, 'run')} to write")
            stored = self._stored[key]
            changed = {
                name: value
                for name, value in metrics.items()
                if stored.latest.get(name, (0, None, 0))[1] != value
            }
            points = [
                Point(name, value, self._desired.last_ms, stored.latest.get(name, NONE_LOGGED)[0] + 1)
                for name, value in changed.items()
            ]
            if points:
                self._store.log(stored, points, {}, {})
                self._counts.points += len(points)
        for key, points in self._desired.at_close.items():
            self._fill(self._stored[key], points, {}, {})
        return self._counts

    def upload(self, folder: SweepFolder) -> Counts:
        """Spec, plan, provenance and report beside the sweep's run, the report as text and its figures beside
        those of its arms, kept files beside those of trials, unless these very files are there."""
        self._counts = Counts()
        files = list(_artifacts(folder))
        figures = [each for each in files if each[0] == folder.report / "report.md" or _figure(each[0])]
        for key in self._stored:
            if key == SWEEP:
                self._upload(key, files)
            elif key.startswith("arm/"):
                self._upload(key, figures)
            else:
                self._upload(key, list(_kept(folder.kept(key.removeprefix("trial/")))))
        return self._counts

    def _upload(self, key: str, files: Sequence[tuple[Path, str]]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for file, place in files:
            digest.update(f"{place}/{file.name}\0".encode() + hashlib.blake2b(file.read_bytes()).digest())
        tag, stored = {f"{PREFIX}artifacts": digest.hexdigest()}, self._stored[key]
        if files and stored.tags.get(f"{PREFIX}artifacts") != digest.hexdigest():
            for number, (file, place) in enumerate(files):
                self._on_progress(f"the report and the sweep's files: {len(files) - number} to write")
                self._store.upload(stored, file, place)
            self._store.log(stored, [], {}, tag)
            self._counts.files += len(files)

    def _write(self) -> None:
        for key in list(self._desired.dirty):
            self._on_progress(f"{amount(len(self._desired.dirty), 'run')} to write")
            desired = self._desired.seen(key)
            stored = self._find(desired)
            self._fill(stored, desired.points, desired.params, self._tags(desired), desired.retried_ms)
            lacking = [each for each in desired.inputs if each[:3] not in stored.inputs]
            if lacking:
                self._store.log_inputs(stored, lacking)
                self._counts.inputs += len(lacking)
            if (stored.status, stored.end_ms) != (desired.status, desired.end_ms or stored.end_ms):
                self._store.end(stored, desired.status, desired.end_ms)
                self._counts.endings += 1
            self._desired.runs[key].points = []
            del self._desired.dirty[key]

    def _close_strangers(self) -> None:
        # Runs of events that the log no longer has, as after a restored backup, must not run for ever.
        for key, stored in self._stored.items():
            if stored.status == "RUNNING" and key not in self._desired.runs:
                self._store.end(stored, "KILLED", self._desired.last_ms)
                self._counts.endings += 1

    def _spill(self) -> None:
        # Points alone: how a run ended may be in events not read yet.
        for key in self._desired.dirty:
            desired = self._desired.runs[key]
            if desired.points:
                self._on_progress(f"points of {desired.name}")
                self._fill(self._find(desired), desired.points, {}, {}, desired.retried_ms)
                desired.points = []

    def _find(self, desired: DesiredRun) -> Stored:
        if desired.key not in self._stored:
            if desired.parent is not None:
                self._find(self._desired.runs[desired.parent])
            tags = self._tags(desired)
            self._stored[desired.key] = self._store.create(desired, tags)
            self._counts.runs += 1
            self._counts.tags += len(tags)
        return self._stored[desired.key]

    def _tags(self, desired: DesiredRun) -> dict[str, str]:
        if desired.parent is None:
            return desired.tags
        return desired.tags | {"mlflow.parentRunId": self._stored[desired.parent].run_id}

    def _fill(
        self,
        stored: Stored,
        points: Sequence[Point],
        params: Mapping[str, str],
        tags: Mapping[str, str],
        retried_ms: int = 0,
    ) -> None:
        points = [each for each in points if _is_new(each, stored, retried_ms)]
        params = {name: value for name, value in params.items() if name not in stored.params}
        tags = {name: value for name, value in tags.items() if stored.tags.get(name) != value}
        if points or params or tags:
            self._store.log(stored, points, params, tags)
        self._counts.points += len(points)
        self._counts.params += len(params)
        self._counts.tags += len(tags)


def _is_new(point: Point, stored: Stored, retried_ms: int) -> bool:
    """Return whether a point may be missing in MLflow.

    The newest stored step of a retried trial may belong to an earlier attempt. MLflow ignores points that it
    already has.
    """
    step, _, at_ms = stored.latest.get(point.key, NONE_LOGGED)
    return point.step > step or at_ms < retried_ms <= point.at_ms


def _kept(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the kept files of a trial, each with its artifact path."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file, (Path("kept") / file.relative_to(folder).parent).as_posix()


def _figure(file: Path) -> bool:
    return file.suffix in {".png", ".svg", ".pdf"}


def _artifacts(folder: SweepFolder) -> Iterator[tuple[Path, str]]:
    """Files with their place beside the run. Raises StoreError for one of the launch that is damaged."""
    for file in (folder.spec, folder.plan, folder.provenance):
        if file.is_file():
            read_sound(file, "restore it from a backup; all else is in MLflow")
            yield file, ""
    for file in sorted(folder.report.rglob("*")):
        if file.is_file():
            place = Path("report") / file.relative_to(folder.report).parent
            yield file, place.as_posix()
