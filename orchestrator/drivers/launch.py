"""From a plan to a finished sweep: folder, ledger, lease, data, background writer, driver, outcome."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from orchestrator.conductor.messages import Progress
from orchestrator.conductor.recorder import Recorder
from orchestrator.drivers.address import check_address
from orchestrator.drivers.checkpoint_stores import Discarding, Elsewhere
from orchestrator.drivers.datasets import OnData, build_datasets, require_files
from orchestrator.drivers.heartbeat import Heartbeat
from orchestrator.drivers.inline import run_inline
from orchestrator.drivers.launch_folder import DEFAULT_WORKLOAD, Setup, launched_plan, publish, read_setup
from orchestrator.drivers.launch_undo import clear_unbegun, refuse_foreign, withdraw, withdraw_folder
from orchestrator.drivers.means import Driver, require_means
from orchestrator.drivers.needs import needs_built
from orchestrator.drivers.presence import FolderGone, Presence
from orchestrator.drivers.scratch import clear_abandoned
from orchestrator.drivers.signals import Interrupts, as_interrupt, interrupts, undisturbed
from orchestrator.drivers.silence import silence_of
from orchestrator.drivers.supervisor import run_ray
from orchestrator.drivers.survey import require_cluster
from orchestrator.drivers.worker import load_workload
from orchestrator.errors import StoreError, Withdrawn
from orchestrator.identity import SweepFolder
from orchestrator.ledger.database import Replaced
from orchestrator.ledger.engine import connect
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import Holder, LeaseHeld
from orchestrator.ledger.outage import OnOutage
from orchestrator.ledger.store import PATIENCE_S, Ledger
from orchestrator.plan.types import Plan
from orchestrator.provenance import provenance
from orchestrator.tracking.background import Follower, start_follower
from orchestrator.tracking.mlflow_runs import check_uri
from orchestrator.trials import OutcomeKind
from trainables.data.progress import Watcher

RAY_LOG = "ray.log"
"""What Ray says of itself, in the folder of the sweep."""
VIEW_S = 0.2
"""Least time between two snapshots."""
PARQUET_WAIT_S = 5.0
DRAIN_S = 3600.0
"""How long a healthy MLflow is given to take what it has not got yet."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A running sweep at one moment, for people to watch."""

    arms: tuple[Progress, ...]
    """In the order of the plan."""
    held_open_s: float
    """Seconds the sweep was held open so far, over all sessions."""
    draining: str
    """Why nothing new is started; empty while something is."""


@dataclass(frozen=True, slots=True)
class Finish:
    """What came of a sweep by the end of a session."""

    counts: Mapping[OutcomeKind, int]
    """Trials that have ended for good, by outcome, over all sessions."""
    left: int
    """Trials that have not."""
    interrupted: bool
    """Whether this session was ended from outside."""
    untracked: str
    """Why MLflow lacks something; empty if it has everything. `haltsweep sync` catches up."""

    @property
    def exit_code(self) -> int:
        """0 done, 1 a trial failed or the budget ended the sweep, 130 interrupted."""
        if self.interrupted:
            return 130
        return int(self.left > 0 or any(self.counts[kind] for kind in self.counts if kind.failed))


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom to tell what while a sweep runs; all but `on_outage` are called in the launching thread."""

    on_change: Callable[[Snapshot], None] = lambda _: None
    on_data: OnData = lambda *_: None
    building: Watcher = field(default_factory=Watcher)
    """How far the split is that is being built, and who is waited for."""
    on_trouble: Callable[[str], None] = lambda _: None
    """Something went wrong, and the sweep goes on: Ray ended, or a node takes no trials."""
    on_tracking: Callable[[str], None] = lambda _: None
    """The trials have ended, and MLflow is waited for: what it still lacks."""
    on_outage: OnOutage = lambda _: None
    """The ledger's database is away, or back."""


def run_sweep(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    spec: str,
    *,
    driver: Driver = "ray",
    address: str | None = None,
    num_cpus: int | None = None,
    watch: Watch | None = None,
) -> Finish:
    """Launch the sweep of `plan`, and run it to its end; `spec` is the text kept as spec.yaml.

    `address` is that of an existing Ray cluster; without it Ray runs on this machine, with `num_cpus`. To
    hear of signals, call this inside of `interrupts`. Raises InputError for what cannot be run, StoreError if
    the ledger fails, LeaseLost if somebody else took over, ExecutorError if Ray ended, Withdrawn on an
    interrupt before the first trial. What fails before that leaves nothing behind.
    """
    _check(setup, folder, address)
    if setup.workload == DEFAULT_WORKLOAD:
        require_files(plan)
    means = _Means(driver, address, num_cpus, watch or Watch())
    _require(means, plan, folder, setup)
    origin = provenance().to_json()
    clear_unbegun(folder)
    with _withdrawn_if_unbegun(folder):
        if not folder.root.exists():
            refuse_foreign(folder, setup)
        publish(plan, folder, spec, origin, setup)
        # Plan and setup as later sessions will read them, so that all sessions see the same.
        finish = _session(launched_plan(folder), folder, read_setup(folder), origin, means)
        if finish.interrupted and withdraw(folder):
            raise Withdrawn(
                f"interrupted before the first trial of {plan.name!r}: nothing is left of it; launch it again"
            )
        return finish


@contextmanager
def _withdrawn_if_unbegun(folder: SweepFolder) -> Iterator[None]:
    """What fails before its first trial leaves nothing behind."""
    made = not folder.root.parent.exists()
    try:
        yield
    except LeaseHeld:
        withdraw_folder(folder)
        raise
    except BaseException:
        withdraw(folder)
        raise
    finally:
        if made:
            with suppress(OSError):  # it holds something
                folder.root.parent.rmdir()


def resume_sweep(
    folder: SweepFolder,
    *,
    driver: Driver = "ray",
    address: str | None = None,
    num_cpus: int | None = None,
    watch: Watch | None = None,
) -> Finish:
    """Run a launched sweep to its end, from wherever it is. Arguments and errors as of `run_sweep`."""
    plan, setup = launched_plan(folder), read_setup(folder)
    _check(setup, folder, address)
    means = _Means(driver, address, num_cpus, watch or Watch())
    if address is not None:
        _require(means, plan, folder, setup)
    return _session(plan, folder, setup, provenance().to_json(), means)


@dataclass(frozen=True, slots=True)
class _Means:
    """What one session is run with."""

    driver: Driver
    address: str | None
    num_cpus: int | None
    watch: Watch


def _require(means: _Means, plan: Plan, folder: SweepFolder, setup: Setup) -> None:
    """Raises InputError where trials cannot run, before anything is made."""
    if means.address is None:
        require_means(plan, means.driver, means.num_cpus)
    else:
        require_cluster(means.address, plan, setup, folder)


def _check(setup: Setup, folder: SweepFolder, address: str | None) -> None:
    """Raises InputError for what cannot work, before anything is made."""
    load_workload(setup.workload)
    if address is not None:
        check_address(address)
    connect(setup.ledger_url(folder)).dispose()
    if setup.tracking_uri is not None:
        check_uri(setup.tracking_uri)
    if setup.checkpoints is not None:
        Elsewhere(setup.checkpoints).probe()


def _session(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    origin: Mapping[str, Any],
    means: _Means,
) -> Finish:
    with interrupts() as heard, _opened(plan, folder, setup, origin, heard=heard, watch=means.watch) as run:
        try:
            if setup.workload == DEFAULT_WORKLOAD and not run.recorder.finished:
                build_datasets(plan, setup.data_dir, means.watch.on_data, means.watch.building)
            with heard.draining():
                run.drive(means, heard.stop)
            run.interrupted = heard.stop.is_set() and not run.recorder.finished
        except KeyboardInterrupt:
            run.interrupted = True
    # Here too: after a killed session there may be nothing left to do for Ray, which clears away otherwise.
    clear_abandoned()
    return run.finish


@dataclass(slots=True)
class _Run:
    """A session with everything it holds."""

    plan: Plan
    folder: SweepFolder
    setup: Setup
    recorder: Recorder
    heartbeat: Heartbeat
    presence: Presence
    begin: Callable[[], None]
    """Called when a trial was handed out, as often as one likes: only then is there something to track."""
    interrupted: bool = False
    _finish: Finish | None = None

    @property
    def finish(self) -> Finish:
        assert self._finish is not None, "a session must be left before its finish is known"
        return self._finish

    def drive(self, means: _Means, stop: threading.Event) -> None:
        """Let the driver run until everything is done or drained."""
        view = _View(lambda: means.watch.on_change(self.snapshot()), self.begin)
        view.show()
        if not self.recorder.finished:
            if means.driver == "inline":
                self._run_inline(view, stop)
            else:
                self._run_ray(means, view, stop)
        view.show()

    def _run_inline(self, view: "_View", stop: threading.Event) -> None:
        run_inline(
            self.recorder,
            self.setup.workload,
            data_dir=self.setup.data_dir,
            checkpoint_seconds=self.plan.resources.checkpoint_seconds,
            silence=silence_of(self.plan.resources),
            checkpoints=self.setup.checkpoints,
            on_change=view.changed,
            stop=stop,
            check=self._check,
        )

    def _check(self) -> None:
        self.heartbeat.check()
        self.presence.check()

    def _run_ray(self, means: _Means, view: "_View", stop: threading.Event) -> None:
        def check() -> None:
            self._check()
            view.catch_up()

        others = (
            nullcontext(None) if means.address is None else needs_built(self.plan, self.setup, self.folder)
        )
        with others as needs:
            run_ray(
                self.recorder,
                self.setup.workload,
                resources=self.plan.resources,
                data_dir=self.setup.data_dir,
                checkpoints=self.setup.checkpoints,
                needs=needs,
                address=means.address,
                num_cpus=means.num_cpus,
                log=self.folder.root / RAY_LOG,
                on_change=view.changed,
                stop=stop,
                check=check,
                warn=means.watch.on_trouble,
            )

    def snapshot(self) -> Snapshot:
        return Snapshot(self.recorder.progress(), self.recorder.held_open_s(), self.recorder.draining)

    def note(self, ledger: Ledger, untracked: str) -> None:
        """Sum up, from what is written."""
        ends = {}
        for event in ledger.events():
            if event.kind is EventKind.ENDED and OutcomeKind(event.payload["kind"]).final:
                ends[event.trial_id] = OutcomeKind(event.payload["kind"])
        left = len(self.plan.trials) - len(ends)
        self._finish = Finish(Counter(ends.values()), left, self.interrupted, untracked)


@dataclass(slots=True)
class _View:
    """Shows changes no more often than people can read; what was passed over is shown a little later."""

    display: Callable[[], None]
    begin: Callable[[], None]
    _shown_at: float = 0.0
    _stale: bool = False

    def show(self) -> None:
        """At once."""
        self._stale, self._shown_at = False, time.monotonic()
        with undisturbed():
            self.display()

    def changed(self) -> None:
        """There is something new."""
        self.begin()
        self._stale = True
        self.catch_up()

    def catch_up(self) -> None:
        """Called often."""
        if self._stale and time.monotonic() - self._shown_at >= VIEW_S:
            self.show()


@contextmanager
def _opened(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    origin: Mapping[str, Any],
    *,
    heard: Interrupts,
    watch: Watch,
) -> Iterator[_Run]:
    """Ledger, lease, heartbeat and follower, all let go of at the end, whatever happens."""
    _refuse_lost_ledger(folder, setup)
    url = setup.ledger_url(folder)
    opening = Ledger.open(url, folder.name, create=True, patience_s=PATIENCE_S, on_outage=watch.on_outage)
    with Presence(folder) as presence, opening as ledger:
        lease = ledger.claim(Holder.current())
        follower: Follower | None = None
        untracked = ""

        def begin() -> None:
            nonlocal follower
            if follower is None and setup.tracking_uri is not None:
                follower = start_follower(folder, url, setup.tracking_uri)

        try:
            with Heartbeat(ledger, lease, on_stop=as_interrupt(heard.stop)) as heartbeat:
                places = Discarding(setup.checkpoints) if setup.checkpoints is not None else None
                recorder = Recorder(plan, ledger, lease, folder, provenance=origin, checkpoints=places)
                run = _Run(plan, folder, setup, recorder, heartbeat, presence, begin)
                if ledger.begun:
                    run.begin()
                with _blamed(recorder, heard):
                    yield run
                recorder.close("interrupted" if run.interrupted else None)
                if places is not None:
                    places.close()
            ledger.release(lease)
        except BaseException as error:
            gone = _gone(error, presence)
            if gone is None:
                with suppress(StoreError):
                    ledger.release(lease, patient=False)
            elif follower is not None:
                follower.kill()  # it would make the folder again
                follower = None
            if gone is None or gone is error:
                raise
            raise gone from error
        finally:
            if follower is not None:
                untracked = _behind(follower, heard, watch)
                if untracked and not heard.hurry.is_set():
                    untracked += _write_parquet(plan, folder, ledger)
        run.note(ledger, untracked)


@contextmanager
def _blamed(recorder: Recorder, heard: Interrupts) -> Iterator[None]:
    """Only a process that ends here, without a word and unasked, is blamed on the trials that it ran."""
    heard.at_first = recorder.excuse
    try:
        yield
    finally:
        recorder.excuse()


def _behind(follower: Follower, heard: Interrupts, watch: Watch) -> str:
    """Have MLflow brought up to date; why it is not, or nothing."""
    if heard.hurry.is_set():
        follower.kill()
        return "the sweep was ended at once"
    behind = follower.drain(DRAIN_S, waiting=watch.on_tracking)
    return behind.error if behind is not None else ""


def _gone(error: BaseException, presence: Presence) -> StoreError | None:
    """What says that folder or ledger are gone, if that is what the error comes from."""
    if isinstance(error, StoreError | OSError) and not isinstance(error, FolderGone):
        try:
            presence.check(at_once=True)
        except FolderGone as gone:
            return gone
    return error if isinstance(error, FolderGone | Replaced) else None


def _write_parquet(plan: Plan, folder: SweepFolder, ledger: Ledger) -> str:
    """What the follower, waiting for MLflow, did not come to; what was in the way."""
    from orchestrator.tracking.lock import projection_lock
    from orchestrator.tracking.parquet import ParquetFiles

    try:
        with projection_lock(folder.root, wait_s=PARQUET_WAIT_S):
            ParquetFiles(folder, plan, ledger).update()
    except StoreError as error:
        return f"; {error}"
    return ""


def _refuse_lost_ledger(folder: SweepFolder, setup: Setup) -> None:
    """A ledger that is gone is not made anew beside what came of it."""
    traces = (folder.checkpoints, folder.records, folder.measurements)
    if setup.storage is None and not folder.ledger.exists() and any(trace.exists() for trace in traces):
        raise StoreError(
            f"the ledger {folder.ledger} must be there, for the sweep has begun, and it is not; "
            "restore it from a backup, or delete the sweep's folder and launch again"
        )
