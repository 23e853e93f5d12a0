"""From a plan to a finished sweep: folder, ledger, lease, data, background writer, driver, outcome."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.conductor.messages import Progress
from orchestrator.conductor.recorder import Recorder
from orchestrator.drivers.address import check_address
from orchestrator.drivers.datasets import OnData, build_datasets, require_files
from orchestrator.drivers.heartbeat import Heartbeat
from orchestrator.drivers.inline import run_inline
from orchestrator.drivers.launch_folder import DEFAULT_WORKLOAD, Setup, launched_plan, publish, read_setup
from orchestrator.drivers.ray_settings import ray_environment
from orchestrator.drivers.signals import interrupts
from orchestrator.drivers.silence import silence_limit
from orchestrator.drivers.slots import require_room, this_machine
from orchestrator.drivers.worker import load_workload
from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.engine import connect
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.provenance import provenance
from orchestrator.tracking.background import start_follower
from orchestrator.tracking.mlflow_runs import check_uri
from orchestrator.trials import OutcomeKind
from trainables.data.progress import Watcher

Driver = Literal["ray", "inline"]
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
    """Whom to tell what while a sweep runs; all are called in the launching thread."""

    on_change: Callable[[Snapshot], None] = lambda _: None
    on_data: OnData = lambda *_: None
    building: Watcher = field(default_factory=Watcher)
    """How far the split is that is being built, and who is waited for."""
    on_interrupt: Callable[[], None] = lambda: None
    """The first Ctrl-C has come: the sweep drains."""


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

    `address` is that of an existing Ray cluster; without it Ray runs on this machine, with `num_cpus`. Raises
    InputError for what cannot be run, StoreError if the ledger fails, LeaseLost if somebody else took over.
    """
    _check(setup, folder, address)
    if setup.workload == DEFAULT_WORKLOAD:
        require_files(plan)
    if driver == "ray" and address is None:
        require_room([this_machine(num_cpus)], plan.resources)
    origin = provenance().to_json()
    publish(plan, folder, spec, origin, setup)
    means = _Means(driver, address, num_cpus, watch or Watch())
    # Plan and setup as later sessions will read them, so that all sessions see the same.
    return _session(launched_plan(folder), folder, read_setup(folder), origin, means)


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
    return _session(plan, folder, setup, provenance().to_json(), means)


@dataclass(frozen=True, slots=True)
class _Means:
    """What one session is run with."""

    driver: Driver
    address: str | None
    num_cpus: int | None
    watch: Watch


def _check(setup: Setup, folder: SweepFolder, address: str | None) -> None:
    """Raises InputError for what cannot work, before anything is made."""
    load_workload(setup.workload)
    if address is not None:
        check_address(address)
    connect(setup.ledger_url(folder)).dispose()
    if setup.tracking_uri is not None:
        check_uri(setup.tracking_uri)


def _session(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    origin: Mapping[str, Any],
    means: _Means,
) -> Finish:
    with _opened(plan, folder, setup, origin) as run:
        try:
            if setup.workload == DEFAULT_WORKLOAD and not run.recorder.finished:
                build_datasets(plan, setup.data_dir, means.watch.on_data, means.watch.building)
            with interrupts(means.watch.on_interrupt) as stop:
                run.drive(means, stop)
            run.interrupted = stop.is_set() and not run.recorder.finished
        except KeyboardInterrupt:
            run.interrupted = True
    return run.finish


@dataclass(slots=True)
class _Run:
    """A session with everything it holds."""

    plan: Plan
    setup: Setup
    recorder: Recorder
    heartbeat: Heartbeat
    interrupted: bool = False
    _finish: Finish | None = None

    @property
    def finish(self) -> Finish:
        assert self._finish is not None, "a session must be left before its finish is known"
        return self._finish

    def drive(self, means: _Means, stop: threading.Event) -> None:
        """Let the driver run until everything is done or drained."""
        view = _View(lambda: means.watch.on_change(self.snapshot()))
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
            silence_s=silence_limit(self.plan.resources),
            on_change=view.changed,
            stop=stop,
        )

    def _run_ray(self, means: _Means, view: "_View", stop: threading.Event) -> None:
        def check() -> None:
            self.heartbeat.check()
            view.catch_up()

        with ray_environment(private=means.address is None):
            from orchestrator.drivers.ray_tune import run_ray

            run_ray(
                self.recorder,
                self.setup.workload,
                resources=self.plan.resources,
                data_dir=self.setup.data_dir,
                address=means.address,
                num_cpus=means.num_cpus,
                on_change=view.changed,
                stop=stop,
                check=check,
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
    _shown_at: float = 0.0
    _stale: bool = False

    def show(self) -> None:
        """At once."""
        self._stale, self._shown_at = False, time.monotonic()
        self.display()

    def changed(self) -> None:
        """There is something new."""
        self._stale = True
        self.catch_up()

    def catch_up(self) -> None:
        """Called often."""
        if self._stale and time.monotonic() - self._shown_at >= VIEW_S:
            self.show()


@contextmanager
def _opened(plan: Plan, folder: SweepFolder, setup: Setup, origin: Mapping[str, Any]) -> Iterator[_Run]:
    """Ledger, lease, heartbeat and follower, all let go of at the end, whatever happens."""
    _refuse_lost_ledger(folder, setup)
    url = setup.ledger_url(folder)
    with Ledger.open(url, folder.name, create=True) as ledger:
        lease = ledger.claim(Holder.current())
        follower = None
        untracked = "the sweep ended with an error"
        try:
            with Heartbeat(ledger, lease) as heartbeat:
                recorder = Recorder(plan, ledger, lease, folder, provenance=origin)
                run = _Run(plan, setup, recorder, heartbeat)
                if setup.tracking_uri is not None:
                    follower = start_follower(folder, url, setup.tracking_uri)
                yield run
                recorder.close("interrupted" if run.interrupted else None)
        finally:
            ledger.release(lease)
            if follower is not None:
                behind = follower.drain(DRAIN_S)
                untracked = behind.error if behind is not None else ""
                if untracked:
                    untracked += _write_parquet(plan, folder, ledger)
        run.note(ledger, untracked if setup.tracking_uri is not None else "")


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
