"""Open and close the resources of a session: ledger, lease, heartbeat, tracking."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.conductor.budget import budget_end, error_end
from orchestrator.conductor.retrying import choose_retries
from orchestrator.errors import LeaseLost, StoreError
from orchestrator.execution.checkpoints.checkpoint_index import ExternalCheckpoints
from orchestrator.execution.code_digests import require_same_code
from orchestrator.execution.live_view import Listeners, Snapshot
from orchestrator.execution.signals import Interrupts, interrupt_function
from orchestrator.execution.sweep.folder_watch import FolderLost, FolderWatch
from orchestrator.execution.sweep.heartbeat import Heartbeat
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.execution.sweep.recorder import Recorder
from orchestrator.files.file_digests import MANIFEST, read_manifest
from orchestrator.files.sqlite_files import why_no_database
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from orchestrator.ledger.fold import records
from orchestrator.ledger.lease import Holder, Lease
from orchestrator.ledger.sql.database import LedgerReplaced
from orchestrator.ledger.store import PATIENCE_S, Ledger, OnLeaseTaken
from orchestrator.plan.planned_trials import SEARCH
from orchestrator.plan.serialise import read_plan
from orchestrator.plan.types import Plan
from orchestrator.provenance import PACKAGE_NAME
from orchestrator.tracking.background import Follower, start_follower
from orchestrator.tracking.inputs import FILE as INPUTS
from orchestrator.tracking.summary import ArmSummary
from orchestrator.trials import OutcomeKind, Record, num_ended
from trainables.atomic import clear_unfinished

PARQUET_WAIT_S = 5.0
MLFLOW_WAIT_S = 60.0
"""Seconds that a session waits for MLflow at its end; the follower then continues in the background."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Result of a sweep at the end of a session."""

    counts: Mapping[OutcomeKind, int]
    """Number of trials by final outcome, over all sessions."""
    left: int
    """Number of trials without a final outcome."""
    interrupted: bool
    """Whether this session was interrupted."""
    untracked: str
    """Why MLflow or the Parquet files are incomplete; empty if complete. `haltsweep sync` completes them."""
    spent: str = ""
    """Exhausted budget, because of which no new trial is started; empty if trials may be started."""
    num_never_started: int = 0
    """Number of failed trials that never started, since a trial that they depend on failed."""
    unanswered: int = 0
    """Number of failed confirm and posthoc trials, plus the number of arms whose search finished no trial."""
    failing: str = ""
    """Error that stopped the sweep because the first trials of an arm all crashed with it; else empty."""
    tracking_pid: int | None = None
    """Id of the process that still writes the `untracked` part; None if no process does."""

    @property
    def exit_code(self) -> int:
        """Return 0 for a complete sweep, 1 if trials are left or a confirmation failed, 130 if interrupted.

        Failed search trials do not change the exit code, since some settings of a search may diverge.
        """
        if self.interrupted:
            return 130
        return int(self.left > 0 or self.unanswered > 0)


@dataclass(slots=True)
class OpenSweep:
    """Open session of a sweep with all of its resources."""

    plan: Plan
    folder: SweepFolder
    setup: Setup
    recorder: Recorder
    heartbeat: Heartbeat
    folder_watch: FolderWatch
    ledger: Ledger
    start_tracking: Callable[[], None]
    """Function that starts the follower after the first trial has started; repeated calls have no effect."""
    interrupted: bool = False
    _result: SweepResult | None = None

    @property
    def result(self) -> SweepResult:
        """Result of the session, available after the session is closed."""
        assert self._result is not None, "the result exists only after the session is closed"
        return self._result

    def check(self) -> None:
        """Raise `LeaseLost`, `StoreError` or `FolderLost` if the session must end at once."""
        self.heartbeat.check()
        self.folder_watch.check()

    def records(self) -> Sequence[Record]:
        """Return the records of all trials in the ledger."""
        return records(self.ledger.newest_events(), self.plan)

    def snapshot(self) -> Snapshot:
        """Return the current state of the sweep for display."""
        recorder = self.recorder
        return Snapshot(
            recorder.progress(), recorder.open_seconds(), recorder.drain_reason, recorder.outlook()
        )

    def store_result(self, ledger: Ledger, untracked: str, tracking_pid: int | None) -> None:
        """Store the result of the session, computed from the ledger."""
        ends: dict[str, OutcomeKind] = {}
        event, started_ids = None, set()
        for event in ledger.events():
            if event.trial_id is None:
                continue
            if event.kind is EventKind.STARTED:
                started_ids.add(event.trial_id)
            elif event.kind is EventKind.ENDED and OutcomeKind(event.payload["kind"]).is_final:
                ends[event.trial_id] = OutcomeKind(event.payload["kind"])
            elif event.kind is EventKind.RETRIED:
                ends.pop(event.trial_id, None)
        counts = Counter(ends.values())  # an infeasible trial is replaced by another trial
        self._result = SweepResult(
            counts=counts,
            left=len(self.plan.trials) - counts.total() + counts[OutcomeKind.INFEASIBLE],
            interrupted=self.interrupted,
            untracked=untracked,
            spent=budget_end(event, self.plan),
            num_never_started=sum(
                kind.is_failure for trial_id, kind in ends.items() if trial_id not in started_ids
            ),
            unanswered=_count_unanswered(self.plan, ends),
            failing=error_end(event),
            tracking_pid=tracking_pid,
        )


def _count_unanswered(plan: Plan, ends: Mapping[str, OutcomeKind]) -> int:
    """Return `SweepResult.unanswered`; `ends` contains final outcomes by trial id."""
    kinds: dict[tuple[str, bool], list[OutcomeKind | None]] = {}
    for trial in plan.trials:
        kinds.setdefault((trial.arm, trial.phase == SEARCH), []).append(ends.get(trial.trial_id))
    num_failed = 0
    for (_, is_search), outcomes in kinds.items():
        if is_search:
            num_failed += None not in outcomes and OutcomeKind.FINISHED not in outcomes
        else:
            num_failed += sum(kind is not None and kind.is_failure for kind in outcomes)
    return num_failed


@dataclass(slots=True)
class _Tracking:
    """Process of a session that brings MLflow and the Parquet files up to date."""

    plan: Plan
    folder: SweepFolder
    ledger: Ledger
    url: str
    uri: str | None
    follower: Follower | None = None

    def start(self) -> None:
        """Start the follower if the sweep is tracked; repeated calls have no effect."""
        if self.follower is None and self.uri is not None:
            self.follower = start_follower(self.folder, self.url, self.uri)

    def kill(self) -> None:
        """Kill the follower, so that `finish` has nothing to do."""
        if self.follower is not None:
            self.follower.kill()
            self.follower = None

    def finish(
        self, summary: ArmSummary | None, interrupts: Interrupts, watch: Listeners
    ) -> tuple[str, int | None]:
        """Return why MLflow or Parquet files are behind, and the id of a process that still writes them."""
        if self.follower is None:
            return "", None
        if interrupts.exit_now.is_set():
            self.follower.kill()
            error = "the sweep was stopped at once"
        else:
            behind = self.follower.drain(MLFLOW_WAIT_S, on_wait=watch.on_tracking, summary=summary)
            error = behind.error if behind is not None else ""
        if self.follower.detached:
            return error, self.follower.pid
        if (error or self.follower.is_parquet_outdated) and not interrupts.exit_now.is_set():
            error = "; ".join(filter(None, (error, self._write_parquet())))
        return error, None

    def _write_parquet(self) -> str:
        """Write the Parquet files that the follower did not write; return the error, or an empty string."""
        from orchestrator.tracking.parquet import ParquetFiles
        from orchestrator.tracking.state import projection_lock

        try:
            with projection_lock(self.folder.root, wait_s=PARQUET_WAIT_S):
                ParquetFiles(self.folder, self.plan, self.ledger).update()
        except StoreError as error:
            return str(error)
        return ""


@contextmanager
def open_sweep(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    origin: Mapping[str, Any],
    *,
    interrupts: Interrupts,
    watch: Listeners,
    changed_code: bool = False,
    retry: Sequence[str] = (),
    on_fenced: OnLeaseTaken | None = None,
) -> Iterator[OpenSweep]:
    """Open a session, yield it, and close its resources.

    Args:
        plan: The plan of the sweep.
        folder: Folder of the sweep.
        setup: Setup of the sweep.
        origin: Current provenance, as returned by `collect_provenance`.
        interrupts: State of signals.
        watch: Callbacks during the sweep.
        changed_code: Whether custom training code may differ from the code of earlier trials.
        retry: Trials to run again, which may have run other code before.
        on_fenced: See `Ledger.claim`.
    """
    _refuse_lost_ledger(folder, setup)
    url = setup.ledger_url(folder)
    opening = Ledger.open(url, folder.name, create=True, patience_s=PATIENCE_S, on_outage=watch.on_outage)
    with FolderWatch(folder) as folder_watch, opening as ledger:
        lease = ledger.claim(Holder.current(), on_fenced=on_fenced, on_wait=watch.on_starting)
        origin = _check_origin(plan, folder, origin, ledger, lease, retry=None if changed_code else retry)
        tracking = _Tracking(plan, folder, ledger, url, setup.tracking_uri)
        summary: ArmSummary | None = None
        external_checkpoints = (
            ExternalCheckpoints(setup.checkpoints) if setup.checkpoints is not None else None
        )
        try:
            with Heartbeat(ledger, lease, on_stop=interrupt_function(interrupts.stop)) as heartbeat:
                recorder = Recorder(
                    plan,
                    ledger,
                    lease,
                    folder,
                    provenance=origin,
                    checkpoints=external_checkpoints,
                    snapshots=ledger,
                )
                recorder.on_failure = watch.on_failure
                run = OpenSweep(
                    plan, folder, setup, recorder, heartbeat, folder_watch, ledger, tracking.start
                )
                if ledger.has_trials:
                    run.start_tracking()
                yield run
                _close_session(recorder, run, external_checkpoints)
            ledger.release(lease)
            if ledger.has_trials and not interrupts.exit_now.is_set():
                summary = watch.on_end()  # the follower writes new ledger entries meanwhile
        except BaseException as error:
            loss = _loss_error(error, folder_watch)
            if loss is None:
                with suppress(StoreError):
                    ledger.release(lease, patient=False)
            if loss is not None or isinstance(error, LeaseLost):
                tracking.kill()  # the follower would recreate the folder, or write without a lease
            if loss is None or loss is error:
                raise
            raise loss from error
        finally:
            if external_checkpoints is not None:
                external_checkpoints.close(0)  # after an error; otherwise it is closed already
            untracked, tracking_pid = tracking.finish(summary, interrupts, watch)
        run.store_result(ledger, untracked, tracking_pid)


def _close_session(
    recorder: Recorder, run: OpenSweep, external_checkpoints: ExternalCheckpoints | None
) -> None:
    recorder.close("interrupted" if run.interrupted else None)
    shutil.rmtree(run.folder.scratch, ignore_errors=True)
    if external_checkpoints is not None:
        external_checkpoints.close()


def _loss_error(error: BaseException, folder_watch: FolderWatch) -> StoreError | None:
    """Return the error that reports a lost folder or ledger; None if `error` has a different cause."""
    if isinstance(error, StoreError | OSError) and not isinstance(error, FolderLost):
        try:
            folder_watch.check(at_once=True)
        except FolderLost as folder_error:
            return folder_error
    return error if isinstance(error, FolderLost | LedgerReplaced) else None


def _check_origin(
    plan: Plan,
    folder: SweepFolder,
    origin: Mapping[str, Any],
    ledger: Ledger,
    lease: Lease,
    *,
    retry: Sequence[str] | None,
) -> Mapping[str, Any]:
    """Return `origin` with digests of spec and plan, after checking that the sweep matches this session.

    Args:
        plan: The plan of the sweep.
        folder: Folder of the sweep.
        origin: Current provenance.
        ledger: Ledger of the sweep.
        lease: Lease of this session.
        retry: Trials to run again, which may have run other code; None if all training code may differ.

    Raises:
        StoreError: The sweep has another plan.
        InputError: The training code has changed.
    """
    _refuse_another_plan(plan, folder, ledger, lease)
    if retry is not None:
        _refuse_other_code(plan, origin, ledger, lease, retry)
    shutil.rmtree(folder.scratch, ignore_errors=True)  # files of trials of a killed session
    for file in (folder.spec, folder.plan, folder.root / INPUTS, folder.root / MANIFEST):
        clear_unfinished(file)  # files of a killed session: only the holder of the lease replaces them
    return {**origin, "files": _session_digests(folder)}


def _refuse_another_plan(plan: Plan, folder: SweepFolder, ledger: Ledger, lease: Lease) -> None:
    """Raise `StoreError` if the sweep was extended between reading its plan and claiming it."""
    if read_plan(folder).extended != plan.extended:
        ledger.release(lease)
        raise StoreError(f"another process extended {plan.name}; no trial was run: repeat `haltsweep resume`")


def _refuse_other_code(
    plan: Plan, origin: Mapping[str, Any], ledger: Ledger, lease: Lease, retry: Sequence[str]
) -> None:
    """Raise `InputError` if custom code has changed since earlier trials, unless no trial is left to run."""
    if set(origin.get("code_parts", ())) <= {PACKAGE_NAME}:
        return
    try:
        earlier_records = records(ledger.newest_events(), plan)
        retried_ids = choose_retries(plan, earlier_records, retry).trial_ids
        earlier_records = [record for record in earlier_records if record.trial_id not in retried_ids]
        if num_ended(earlier_records) < len(plan.trials):
            require_same_code(plan, earlier_records, origin)
    except BaseException:
        ledger.release(lease, patient=False)
        raise


def _session_digests(folder: SweepFolder) -> dict[str, str]:
    """Return digests of the spec and plan of this session, for comparisons by readers of the ledger."""
    manifest = read_manifest(folder.root) or {}
    return {file.name: manifest[file.name] for file in (folder.spec, folder.plan) if file.name in manifest}


def _refuse_lost_ledger(folder: SweepFolder, setup: Setup) -> None:
    """Raise `StoreError` instead of creating a new ledger if the sweep has results but no ledger."""
    if setup.storage is None and folder.has_traces and (reason := why_no_database(folder.ledger)):
        raise StoreError(
            f"the ledger {folder.ledger} must exist, since the sweep has begun, but it {reason}; "
            "restore it from a backup, or launch the spec again under another name"
        )
