"""Check the parts of a sweep for `haltsweep verify`, without writing anything."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from orchestrator.cli.locations import command
from orchestrator.errors import HaltsweepError, InputError, StoreAccessDenied, StoreError
from orchestrator.execution.sweep.extend_folder import editions
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup, read_setup
from orchestrator.files.file_digests import damaged_files, read_manifest
from orchestrator.files.findings import Finding, Soundness
from orchestrator.files.known_addresses import require_known
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount

if TYPE_CHECKING:
    from orchestrator.execution.checkpoints.worker_checkpoints import Checkpoint
    from orchestrator.ledger.store import Ledger
    from orchestrator.plan.types import Plan
    from orchestrator.trials import Record

OnProgress = Callable[[str], None]
RETRYING = Retrying(wait=wait_fixed(0.1), stop=stop_after_attempt(10), reraise=True)


@dataclass(frozen=True, slots=True)
class CheckedSweep:
    """A sweep with a readable plan, setup and ledger."""

    folder: SweepFolder
    plan: "Plan"
    setup: Setup
    ledger: "Ledger"
    records: "Sequence[Record]"


def check_files(folder: SweepFolder) -> Iterator[Finding]:
    """Yield findings on the files of the launch."""
    repair_hint = f"`{command('verify', folder)} --repair` rebuilds it from spec.yaml"
    remedies = {folder.plan.name: f"{repair_hint}, else restore it from a backup"}
    if editions(folder):
        remedy = f"`{command('verify', folder)} --repair` restores the stored edition"
        remedies = dict.fromkeys((folder.spec.name, folder.plan.name), remedy)
    yield from _check_manifest(
        "files", folder.root, lambda name: remedies.get(name, "restore it from a backup")
    )
    for edition in editions(folder):
        yield from _check_manifest("extensions", edition, lambda _: "restore it from a backup")
    yield from _setup_fault(folder)


def _setup_fault(folder: SweepFolder) -> Iterator[Finding]:
    """Yield findings on launch.json and the list of data, which contain their own digests.

    Nothing is reported if the manifest is missing or already reported as damaged.
    """
    from orchestrator.tracking.inputs import read_inputs

    try:
        if read_manifest(folder.root) is None:
            return
    except StoreError:
        return
    try:
        read_setup(folder)
        read_inputs(folder)
    except StoreAccessDenied as error:
        yield Finding("files", "unknown", str(error))
    except StoreError as error:
        yield Finding("files", "damaged", str(error))


def check_report(folder: SweepFolder) -> Iterator[Finding]:
    """Yield findings on the files of the report."""
    remedy = f"`{command('report', folder)}` recreates it"
    if folder.report.is_dir():
        yield from _check_manifest("report", folder.report, lambda _: remedy)
    else:
        yield Finding("report", "absent", "there is none yet", remedy)


def _check_manifest(part: str, folder: Path, remedy: Callable[[str], str]) -> Iterator[Finding]:
    try:
        faults = damaged_files(folder)
    except StoreError as error:
        yield Finding(part, "damaged", str(error))
        return
    for name, fault in faults.items():
        if fault:
            yield Finding(part, "damaged", f"{folder / name}: {fault}", remedy(name))
    if not any(faults.values()):
        yield Finding(part, "sound", f"{amount(len(faults), 'file')} unchanged: {', '.join(sorted(faults))}")


def check_ledger(store: "Ledger") -> Iterator[Finding]:
    """Yield findings on every row of the event log."""
    faults = store.verify()
    for fault in faults:
        yield Finding("ledger", "damaged", str(fault), "restore the ledger from a backup")
    if not faults:
        yield Finding(
            "ledger", "sound", f"{amount(store.last_seq(), 'event')}, each chained to the previous one"
        )


def check_trials(store: "Ledger", folder: SweepFolder) -> Iterator[Finding]:
    """Yield a finding if the ledger contains trials that are missing in the plan."""
    from orchestrator.plan.planned_trials import replacement_trials
    from orchestrator.plan.serialise import read_plan

    known_ids = {event.trial_id for event in store.events() if event.trial_id is not None}
    # Read after the ledger, since an extension writes the plan before its events.
    plan = read_plan(folder)
    unplanned_ids = known_ids - {trial.trial_id for trial in plan.trials}
    if unplanned_ids and (
        unplanned_ids := unplanned_ids - {trial.trial_id for trial in replacement_trials(plan)}
    ):
        missing_count, example = amount(len(unplanned_ids), "trial"), min(unplanned_ids)
        detail = f"the plan lacks {missing_count} of its ledger, such as {example}"
        remedy = (
            "the sweep was extended in another copy of this folder: continue in that copy, or restore "
            "spec.yaml, plan.json, manifest.json and extensions/ from it"
        )
        yield Finding("ledger", "damaged", detail, remedy)


def check_copies(
    folder: SweepFolder, plan: "Plan", setup: Setup, ledger: "Ledger", on_progress: OnProgress
) -> Iterator[Finding]:
    """Yield findings on all parts that are compared with the ledger."""
    from orchestrator.ledger.fold import records

    sweep = CheckedSweep(folder, plan, setup, ledger, records(ledger.events(), plan))
    yield from check_snapshot(sweep)
    yield from check_checkpoints(sweep, on_progress)
    yield from check_data(sweep, on_progress)
    yield from check_parquet(sweep)
    yield from check_mlflow(sweep, on_progress)


def check_checkpoints(sweep: CheckedSweep, on_progress: OnProgress) -> Iterator[Finding]:
    """Yield findings on every file of every checkpoint."""
    from orchestrator.execution.checkpoints.checkpoint_stores import COMMAND_PATIENCE_S, make_store

    store, trials, num_sound = make_store(sweep.setup.checkpoints, COMMAND_PATIENCE_S), sweep.plan.trials, 0
    try:
        for number, trial in enumerate(trials):
            on_progress(f"checkpoints of {amount(len(trials) - number, 'trial')} to read")
            for checkpoint in store.complete(sweep.folder.checkpoint(trial.trial_id)):
                fault = _checkpoint_fault(checkpoint)
                if fault:
                    yield fault
                num_sound += fault == ""
    except HaltsweepError as error:
        yield Finding("checkpoints", "unknown", str(error))
        return
    yield Finding("checkpoints", "sound", f"{amount(num_sound, 'checkpoint')} unchanged")


def _checkpoint_fault(checkpoint: "Checkpoint") -> "Finding | Literal[''] | None":
    """Return a finding on a damaged checkpoint; empty if it is intact, None if it was deleted meanwhile."""
    from orchestrator.execution.checkpoints.worker_checkpoints import CheckpointDamaged

    def may_be_in_deletion(error: BaseException) -> bool:
        is_readable = not isinstance(error.__cause__, PermissionError)
        return isinstance(error, CheckpointDamaged) and is_readable and checkpoint.folder.is_dir()

    retrying = RETRYING.copy(retry=retry_if_exception(may_be_in_deletion))
    try:
        retrying(checkpoint.measurement)
    except CheckpointDamaged as error:
        if isinstance(error.__cause__, PermissionError):
            return Finding("checkpoints", "unknown", str(error), "check as the user who owns the sweep")
        if not checkpoint.folder.is_dir():
            return None
        remedy = f"the trial resumes from an older checkpoint or from the start; delete {checkpoint.folder}"
        return Finding("checkpoints", "damaged", str(error), remedy)
    return ""


def check_data(sweep: CheckedSweep, on_progress: OnProgress) -> Iterator[Finding]:
    """Yield findings on every data set that the sweep's arms or trials read."""
    if sweep.setup.workload != DEFAULT_WORKLOAD:
        yield Finding("data", "absent", f"{sweep.setup.workload} manages its own data")
        return
    from orchestrator.execution.code_digests import MISSING_REMEDY
    from orchestrator.execution.datasets import tasks_with_splits
    from trainables.data.store import split_path
    from trainables.task_catalog import task_name

    confirmed = sweep.plan.test_splits
    raw = [arm.settings["task"] for arm in sweep.plan.arms]
    raw += [record.settings["task"] for record in sweep.records]
    try:
        tasks = list(tasks_with_splits(raw, confirmed))
    except (ValueError, LookupError) as error:
        detail = f"a task of the sweep cannot be read: {str(error).partition(chr(10))[0]}"
        yield Finding("data", "unknown", detail, MISSING_REMEDY)
        return
    for config, infos in tasks:
        for info in infos:
            if info.streamed:
                continue
            on_progress(f"data: {task_name(config)}/{info.name}")
            try:
                yield _check_split(split_path(config, info.name, sweep.setup.data_dir))
            except ValueError as error:
                detail = f"{task_name(config)}/{info.name}: its source cannot be read: {error}"
                yield Finding("data", "unknown", detail, "put the files back, or name their folder")


def _check_split(path: Path) -> Finding:
    from trainables.data.inventory import inspect_file

    if not path.exists():
        return Finding("data", "absent", f"{path} is missing; a session builds it when needed")
    data_file = inspect_file(path)
    assert data_file is not None, "the path is that of a data file"
    verdicts: dict[str, Soundness] = {"whole": "sound", "stale": "sound", "being built": "absent"}
    verdict = verdicts.get(data_file.verdict, "unknown" if data_file.verdict == "unknown" else "damaged")
    detail = f"{path}: {data_file.reason or data_file.content_hash}"
    remedy = "the next session that needs it rebuilds it" if verdict == "damaged" else ""
    return Finding("data", verdict, detail, remedy)


def check_parquet(sweep: CheckedSweep) -> Iterator[Finding]:
    """Yield findings on every Parquet file, compared with the ledger."""
    from orchestrator.tracking.parquet import check_files

    sync = f"`{command('sync', sweep.folder)}` recreates it from the ledger"
    faults = check_files(sweep.folder, sweep.plan, sweep.ledger)
    for file, fault in faults.items():
        if fault:
            yield Finding("parquet", "damaged", f"{file}: {fault}", sync)
    if not faults:
        yield Finding("parquet", "absent", "there is none yet", sync)
    elif not any(faults.values()):
        yield Finding("parquet", "sound", f"{amount(len(faults), 'file')} in agreement with the ledger")


def check_mlflow(sweep: CheckedSweep, on_progress: OnProgress) -> Iterator[Finding]:
    """Yield findings on every run in MLflow, compared with the ledger."""
    from orchestrator.cli.display.tracking_status import read_tracking_status, tracking_store
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.results.tracked_values import arm_metrics
    from orchestrator.tracking.inputs import read_inputs
    from orchestrator.tracking.mlflow.desired_runs import DesiredRuns
    from orchestrator.tracking.mlflow.mlflow_check import compare
    from orchestrator.tracking.mlflow.mlflow_reading import read_runs

    uri = tracking_store(sweep.folder, sweep.setup)
    if uri is None:
        yield Finding("mlflow", "absent", "the sweep was launched without MLflow")
        return
    try:
        require_known(uri, "--tracking")
    except InputError as error:
        yield Finding("mlflow", "unknown", str(error))
        return
    sync = command("sync", sweep.folder)
    # A trial that ends while MLflow is read may be missing in the result.
    last_seq, is_locked = sweep.ledger.last_seq(), sweep.ledger.is_held()
    state = read_tracking_status(sweep.folder, uri, last_seq)
    is_settled = not (is_locked or state.active or state.behind)
    try:
        stored_runs = read_runs(uri, sweep.plan.name, sweep.ledger.uid, on_progress)
    except StoreError as error:
        yield Finding("mlflow", "unknown", str(error))
        return
    if not stored_runs:
        yield Finding("mlflow", "behind", "the sweep is missing in MLflow", f"`{sync}` writes it")
        return
    # Read after MLflow, which is never ahead of the ledger.
    try:
        inputs = read_inputs(sweep.folder)
    except StoreError as error:
        yield Finding("mlflow", "unknown", str(error))
        return
    desired_runs = DesiredRuns(sweep.plan, sweep.ledger.uid, inputs)
    for event in sweep.ledger.events():
        desired_runs.apply(event)
    desired_runs.set_locked(is_locked=is_locked)
    is_settled = is_settled and sweep.ledger.last_seq() == last_seq
    means = arm_metrics(summarise(sweep.plan, sweep.records))
    yield from compare(desired_runs, stored_runs, means, is_final=is_settled, sync=sync)


def check_snapshot(sweep: CheckedSweep) -> Iterator[Finding]:
    """Compare the snapshot in the ledger with the state computed from all events, and yield a finding."""
    from orchestrator.execution.sweep.sweep_fold import SweepFold, snapshot_key

    remedy = f"no event is lost; `{command('verify', sweep.folder, '--repair')}` deletes it"
    if sweep.ledger.has_unfit_snapshot():
        detail = "the snapshot differs from what haltsweep wrote, or belongs to other events"
        yield Finding("snapshot", "damaged", detail, remedy)
    snapshot = sweep.ledger.snapshot()
    if snapshot is None:
        return
    if snapshot.made_for != snapshot_key(sweep.plan):
        yield Finding("snapshot", "sound", "not used, since it is from an earlier plan or another version")
        return
    fold = SweepFold(sweep.plan)
    for event in islice(sweep.ledger.events(), snapshot.seq):
        fold.apply(event)
    if fold.matches(snapshot.content):
        yield Finding("snapshot", "sound", f"{amount(snapshot.seq, 'event')} give this state")
    else:
        yield Finding("snapshot", "damaged", f"the first {snapshot.seq} events give another state", remedy)


@contextmanager
def open_ledger(folder: SweepFolder, setup: Setup, name: str) -> "Iterator[Ledger]":
    """Yield the ledger, or a copy of it if its folder is not writable. Raise `StoreError`."""
    from orchestrator.cli.stored_sweep import readable_url
    from orchestrator.files.sqlite_files import why_no_database
    from orchestrator.ledger.sql.engine import connect
    from orchestrator.ledger.store import Ledger

    url = setup.ledger_url(folder)
    if url == folder.ledger_url and why_no_database(folder.ledger):
        raise StoreError(f"the ledger {folder.ledger} is missing or empty; restore it from a backup")
    connect(url).dispose()  # fail for an invalid file before copying it
    with readable_url(url, folder) as place, Ledger.open(place, name) as ledger:
        yield ledger
