"""Compare each run of a sweep with the run in MLflow, and write the difference.

A new writer looks up in MLflow what was already written. So it is correct after a crash of the last writer,
after an outage, and after the database was deleted.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from orchestrator.files.file_digests import read_verified
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import Inputs
from orchestrator.tracking.mlflow.arms_view import TAG, arms_view
from orchestrator.tracking.mlflow.desired_runs import NOT_APPLICABLE, SWEEP, DesiredRun, DesiredRuns
from orchestrator.tracking.mlflow.mlflow_runs import RunStore, StoredRunState
from orchestrator.tracking.mlflow.points import PREFIX, Point
from orchestrator.tracking.summary import ArmSummary
from search_spaces.wording import amount

NOTICE_TAG = f"{PREFIX}notice"
"""Tag with the warning before an arm's verdict, as set by `report.results.tracked_values.arm_tags`."""
NOT_LOGGED = (-1, 0.0, 0)
"""Latest point of a metric without stored points."""
EVENTS_AT_ONCE = 5000
"""Number of events between two writes of points, which bounds the memory of a rebuild."""
OnProgress = Callable[[str], None]
"""Called before each request to MLflow with a description of the request and of the remaining work."""


@dataclass(slots=True)
class WriteCounts:
    """Number of written items, by kind."""

    runs: int = 0
    points: int = 0
    params: int = 0
    tags: int = 0
    endings: int = 0
    files: int = 0
    inputs: int = 0

    def __add__(self, second: "WriteCounts") -> "WriteCounts":
        return WriteCounts(*map(sum, zip(astuple(self), astuple(second), strict=True)))

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in asdict(self).items() if count)
        return f"{parts} written" if parts else "all was up to date"

    @property
    def total(self) -> int:
        """Number of items of all kinds; 0 if everything was up to date."""
        return sum(astuple(self))


class MlflowWriter:
    """Writer for the runs of one sweep in MLflow. After a `TrackingOutage`, create a new writer."""

    def __init__(
        self,
        uri: str,
        plan: Plan,
        ledger: Ledger,
        artifacts: Path,
        on_progress: OnProgress = lambda _: None,
        *,
        inputs: Inputs = MappingProxyType({}),
    ) -> None:
        """Connect and look up existing runs. Raise `InputError` or `TrackingOutage`."""
        self._on_progress = on_progress
        self._on_progress("looking up what is in MLflow")
        self._ledger = ledger
        self._store = RunStore(uri, plan.name, artifacts)
        self._store.tag_experiment(TAG, arms_view(plan))
        self._desired = DesiredRuns(plan, ledger.uid, inputs)
        self._stored = self._store.search(ledger.uid)
        self._counts = WriteCounts()
        self.position = 0
        """Position in the ledger of the newest event that was written to MLflow."""

    def update(self) -> WriteCounts:
        """Write all events since the last call. Raise `TrackingOutage`."""
        self._counts = WriteCounts()
        # Read before the events: if the holder ends now, its last events are read below.
        is_locked = self._ledger.is_held()
        events = self._ledger.events(self.position)
        while batch := list(islice(events, EVENTS_AT_ONCE)):
            for event in batch:
                self._desired.apply(event)
            self.position = batch[-1].seq or self.position
            if len(batch) == EVENTS_AT_ONCE:
                self._write_points()
        self._desired.set_locked(is_locked=is_locked)
        for key in list(self._desired.dirty):
            self._on_progress(f"{amount(len(self._desired.dirty), 'run')} to write")
            self._write(self._desired.current(key))
            self._desired.runs[key].points = []
            del self._desired.dirty[key]
        return self._counts

    def publish(self, summary: ArmSummary) -> WriteCounts:
        """Write a report's metrics and tags of the arms, then their curves. Raise `TrackingOutage`.

        A changed value becomes a new step of its metric.
        """
        self._counts = WriteCounts()
        for key, tags in self._desired.summary_tags(summary.tags).items():
            # Overwrite a notice that no longer applies.
            old = {NOTICE_TAG: NOT_APPLICABLE} if NOTICE_TAG in self._stored[key].tags else {}
            self._fill(self._stored[key], (), {}, old | tags)
        published = self._desired.summary_metrics(summary.metrics)
        for number, (key, metrics) in enumerate(published.items()):
            self._on_progress(f"the arms' means: {amount(len(published) - number, 'run')} to write")
            latest = self._stored[key].latest
            points = [
                Point(name, value, self._desired.last_ms, latest.get(name, NOT_LOGGED)[0] + 1)
                for name, value in metrics.items()
                if name not in latest or latest[name][1] != value
            ]
            self._fill(self._stored[key], points, {}, {})
        for key, points in self._desired.at_close.items():
            self._fill(self._stored[key], points, {}, {})
        return self._counts

    def upload(self, folder: SweepFolder) -> WriteCounts:
        """Upload files as artifacts unless identical files are already stored. Raise `StoreError`.

        The sweep's run gets spec, plan, provenance and report. The runs of arms get the report as text and
        its figures. The runs of trials get their retained files.
        """
        self._counts = WriteCounts()
        files = list(_sweep_files(folder))
        figures = [file for file in files if file[0] == folder.report / "report.md" or _is_figure(file[0])]
        for key in self._stored:
            if key == SWEEP:
                self._upload(key, files)
            elif key.startswith("arm/"):
                self._upload(key, figures)
            else:
                self._upload(key, list(_kept_files(folder.kept_files(key.removeprefix("trial/")))))
        return self._counts

    def _upload(self, key: str, files: Sequence[tuple[Path, str]]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for file, place in files:
            digest.update(f"{place}/{file.name}\0".encode() + hashlib.blake2b(file.read_bytes()).digest())
        tag, stored_run = {f"{PREFIX}artifacts": digest.hexdigest()}, self._stored[key]
        if files and not tag.items() <= stored_run.tags.items():
            for number, (file, place) in enumerate(files):
                self._on_progress(f"the report and the sweep's files: {len(files) - number} to write")
                self._store.upload(stored_run, file, place)
            self._store.log(stored_run, [], {}, tag)
            self._counts.files += len(files)

    def _write(self, desired: DesiredRun) -> None:
        """Write those parts of the run that are missing in MLflow."""
        stored_run = self._find(desired)
        self._fill(stored_run, desired.points, desired.params, self._tags(desired), desired.retried_ms)
        inputs = [dataset for dataset in desired.inputs if dataset[:3] not in stored_run.inputs]
        if inputs:
            self._store.log_inputs(stored_run, inputs)
            self._counts.inputs += len(inputs)
        if (stored_run.status, stored_run.end_ms) != (desired.status, desired.end_ms or stored_run.end_ms):
            self._store.set_status(stored_run, desired.status, desired.end_ms)
            self._counts.endings += 1

    def _write_points(self) -> None:
        """Write only points, to free their memory; later events may change all other parts."""
        for key in self._desired.dirty:
            desired = self._desired.runs[key]
            if desired.points:
                self._on_progress(f"points of {desired.name}")
                self._fill(self._find(desired), desired.points, {}, {}, desired.retried_ms)
                desired.points = []

    def _find(self, desired: DesiredRun) -> StoredRunState:
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
        run_state: StoredRunState,
        points: Sequence[Point],
        params: Mapping[str, str],
        tags: Mapping[str, str],
        retried_ms: int = 0,
    ) -> None:
        """Write the points, parameters and tags that the run in MLflow does not have yet."""
        points = [point for point in points if _is_new(point, run_state, retried_ms)]
        params = {name: value for name, value in params.items() if name not in run_state.params}
        tags = {name: value for name, value in tags.items() if run_state.tags.get(name) != value}
        if points or params or tags:
            self._store.log(run_state, points, params, tags)
        self._counts.points += len(points)
        self._counts.params += len(params)
        self._counts.tags += len(tags)


def _is_new(point: Point, run_state: StoredRunState, retried_ms: int) -> bool:
    """Return whether a point may be missing in MLflow.

    The newest stored step of a retried trial may belong to an earlier attempt. MLflow ignores duplicate
    points.
    """
    step, _, at_ms = run_state.latest.get(point.key, NOT_LOGGED)
    return point.step > step or at_ms < retried_ms <= point.at_ms


def _kept_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the retained files of a trial, each with its artifact path."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file, (Path("kept") / file.relative_to(folder).parent).as_posix()


def _is_figure(file: Path) -> bool:
    return file.suffix in {".png", ".svg", ".pdf"}


def _sweep_files(folder: SweepFolder) -> Iterator[tuple[Path, str]]:
    """Yield the files of a sweep, each with its artifact path. Raise `StoreError` for a damaged file."""
    for file in (folder.spec, folder.plan, folder.provenance):
        if file.is_file():
            read_verified(file, "restore it from a backup; all else is in MLflow")
            yield file, ""
    for file in sorted(folder.report.rglob("*")):
        if file.is_file():
            yield file, (Path("report") / file.relative_to(folder.report).parent).as_posix()
