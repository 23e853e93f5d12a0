"""Launch a planned sweep, or resume it, and run its trials until the sweep ends or is interrupted.

A session locks the sweep, opens its ledger, builds its data sets, starts the process that writes MLflow and
Parquet, and runs the trials with the chosen driver.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.conductor.retrying import Retry, choose_retries
from orchestrator.errors import LaunchUndone, LeaseLost
from orchestrator.execution.checkpoints.checkpoint_checks import checkpoint_fault
from orchestrator.execution.checkpoints.checkpoint_stores import ExternalStore, make_store
from orchestrator.execution.code_digests import collect_provenance
from orchestrator.execution.datasets import (
    build_datasets,
    collect_inputs,
    repeated_input_warnings,
    require_files,
    require_same_data,
)
from orchestrator.execution.inline import run_inline
from orchestrator.execution.live_view import Listeners, ThrottledView
from orchestrator.execution.ray.driver import DriverOrder
from orchestrator.execution.ray.node_check import requirements_with_data
from orchestrator.execution.ray.supervisor import run_ray
from orchestrator.execution.ray.survey import check_address, require_cluster
from orchestrator.execution.signals import interrupts
from orchestrator.execution.slots import Driver, require_local_resources
from orchestrator.execution.sweep.extend_folder import finish_extension
from orchestrator.execution.sweep.launch_folder import (
    DEFAULT_WORKLOAD,
    Setup,
    create_sweep_folder,
    read_launched_plan,
    read_setup,
    refuse_copy,
)
from orchestrator.execution.sweep.launch_undo import (
    clear_unstarted,
    refuse_foreign,
    undo_launch,
    undo_launch_folder,
)
from orchestrator.execution.sweep.open_sweep import OpenSweep, SweepResult, open_sweep
from orchestrator.execution.trial.trial_jobs import JobEncoder
from orchestrator.execution.trial.watchdog import silence_limit
from orchestrator.files.abandoned_folders import clear_abandoned
from orchestrator.files.known_addresses import record_addresses, require_known
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import LeaseHeldError
from orchestrator.ledger.sql.engine import connect, require_locks
from orchestrator.ledger.store import OnLeaseTaken
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import split_digests, write_inputs
from orchestrator.tracking.mlflow.mlflow_runs import check_uri
from trainables.custom.extensions import add_to_path

RAY_LOG_FILE = "ray.log"
"""File in the folder of the sweep with the output of Ray."""


def run_sweep(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    spec: str,
    *,
    driver: Driver = "ray",
    address: str | None = None,
    num_cpus: int | None = None,
    watch: Listeners | None = None,
    debug: bool = False,
    on_fenced: OnLeaseTaken | None = None,
) -> SweepResult:
    """Launch the sweep of `plan` and run it to its end.

    An error before the first trial leaves no files behind. Call this function inside `interrupts` to handle
    signals.

    Args:
        plan: The plan of the sweep.
        folder: Folder of the sweep, which must not exist yet.
        setup: Locations of data and stores, and the trainable.
        spec: Text to store as spec.yaml.
        driver: Whether trials run on Ray or in this process.
        address: Address of an existing Ray cluster; None to start Ray on this machine.
        num_cpus: CPUs of a private Ray, by default all CPUs of this process.
        watch: Callbacks during the sweep.
        debug: Whether Python's debugger opens when a trial fails.
        on_fenced: See `clear_unstarted`.

    Returns:
        The result of the sweep at the end of the session.

    Raises:
        InputError: The plan cannot run here.
        StoreError: The ledger or another store failed.
        LeaseLost: Another session took over the sweep.
        ExecutorError: Ray ended.
        LaunchUndone: An interrupt occurred before the first trial.
    """
    record_addresses(setup.storage, setup.tracking_uri)
    _check_setup(setup, folder, address)
    if setup.workload == DEFAULT_WORKLOAD:
        require_files(plan)
    session_options = _SessionOptions(driver, address, num_cpus, watch or Listeners(), debug)
    _require_resources(session_options, plan, folder, setup)
    origin = collect_provenance(plan, setup)
    clear_unstarted(folder, on_fenced)
    with _delete_if_unstarted(folder):
        if not folder.root.exists():
            refuse_foreign(folder, setup)
        create_sweep_folder(plan, folder, spec, origin, setup)
        # Read plan and setup from the folder as later sessions will, so that all sessions use the same
        # values.
        result = _run_session(read_launched_plan(folder), folder, read_setup(folder), origin, session_options)
        if result.interrupted and undo_launch(folder):
            raise LaunchUndone(
                f"interrupted before the first trial of {plan.name!r}: no files remain; launch it again"
            )
        return result


@contextmanager
def _delete_if_unstarted(folder: SweepFolder) -> Iterator[None]:
    """Delete the launched sweep if an error occurs in the context before its first trial."""
    is_new_parent = not folder.root.parent.exists()
    try:
        yield
    except LeaseLost:
        raise  # the sweep now belongs to another session
    except LeaseHeldError:
        undo_launch_folder(folder)
        raise
    except BaseException:
        undo_launch(folder)
        raise
    finally:
        if is_new_parent:
            with suppress(OSError):  # the folder is not empty
                folder.root.parent.rmdir()


def resume_sweep(
    folder: SweepFolder,
    *,
    driver: Driver = "ray",
    address: str | None = None,
    num_cpus: int | None = None,
    watch: Listeners | None = None,
    debug: bool = False,
    changed_code: bool = False,
    retry: Retry | None = None,
    on_fenced: OnLeaseTaken | None = None,
) -> SweepResult:
    """Run a launched sweep from its current state to its end.

    Errors are those of `run_sweep`.

    Args:
        folder: Folder of the launched sweep.
        driver: Whether trials run on Ray or in this process.
        address: Address of an existing Ray cluster; None to start Ray on this machine.
        num_cpus: CPUs of a private Ray, by default all CPUs of this process.
        watch: Callbacks during the session.
        debug: Whether Python's debugger opens when a trial fails.
        changed_code: Whether custom training code may differ from the code of earlier trials.
        retry: Failed trials to run again.
        on_fenced: See `Ledger.claim`.
    """
    plan, setup = read_launched_plan(folder), read_setup(folder)
    require_known(setup.tracking_uri, "--tracking")
    refuse_copy(folder, setup)
    finish_extension(folder)
    _check_setup(setup, folder, address)
    session_options = _SessionOptions(driver, address, num_cpus, watch or Listeners(), debug, on_fenced)
    if address is not None:
        _require_resources(session_options, plan, folder, setup)
    origin = collect_provenance(plan, setup)
    return _run_session(plan, folder, setup, origin, session_options, changed_code=changed_code, retry=retry)


@dataclass(frozen=True, slots=True)
class _SessionOptions:
    """Driver, callbacks and options of one session."""

    driver: Driver
    address: str | None
    num_cpus: int | None
    watch: Listeners
    debug: bool
    """Whether Python's debugger opens when a trial fails; for `inline` only."""
    on_fenced: OnLeaseTaken | None = None
    """See `Ledger.claim`."""


def _require_resources(options: _SessionOptions, plan: Plan, folder: SweepFolder, setup: Setup) -> None:
    """Raise `InputError` if trials cannot run here or on the cluster, before any file is written."""
    if options.address is None:
        require_local_resources(plan, options.driver, options.num_cpus)
    else:
        require_cluster(options.address, plan, setup, folder)


def _check_setup(setup: Setup, folder: SweepFolder, address: str | None) -> None:
    """Raise `InputError` or `StoreError` for a setup that cannot be used, before any file is written."""
    if setup.code is not None:
        add_to_path(Path(setup.code))
    if address is not None:
        check_address(address)
    connect(setup.ledger_url(folder)).dispose()
    require_locks(setup.ledger_url(folder))
    if setup.tracking_uri is not None:
        check_uri(setup.tracking_uri)
    if setup.checkpoints is not None:
        ExternalStore(setup.checkpoints).probe()


def _run_session(
    plan: Plan,
    folder: SweepFolder,
    setup: Setup,
    origin: Mapping[str, Any],
    options: _SessionOptions,
    *,
    changed_code: bool = False,
    retry: Retry | None = None,
) -> SweepResult:
    retried_names, watch = retry.selectors if retry is not None else (), options.watch
    opening = partial(open_sweep, watch=watch, changed_code=changed_code, retry=retried_names)
    with (
        interrupts() as interrupt_state,
        opening(
            plan, folder, setup, origin, interrupts=interrupt_state, on_fenced=options.on_fenced
        ) as session,
    ):
        if retry is not None:
            _retry_trials(session, retry)
        try:
            if setup.workload == DEFAULT_WORKLOAD and not session.recorder.is_finished:
                _prepare_data(session, watch, changed_code=changed_code)
            watch.on_open()
            with interrupt_state.draining():
                _run_driver(session, options, interrupt_state.stop)
            session.interrupted = interrupt_state.stop.is_set() and not session.recorder.is_finished
        except KeyboardInterrupt:
            session.interrupted = True
    # Clean up here too, since a session without remaining trials never starts Ray.
    clear_abandoned()
    return session.result


def _prepare_data(session: OpenSweep, watch: Listeners, *, changed_code: bool) -> None:
    """Build the data, check that earlier trials read the same data, and record their digests."""
    plan, data_dir = session.plan, session.setup.data_dir
    build_datasets(plan, data_dir, watch.on_data, watch.building)
    for warning in repeated_input_warnings(plan, data_dir):
        watch.on_warning(warning)
    inputs = collect_inputs(plan, data_dir)
    if not changed_code:
        require_same_data(plan, session.records(), split_digests(inputs))
    write_inputs(session.folder, inputs)
    session.recorder.record_data(split_digests(inputs))


def _retry_trials(session: OpenSweep, retry: Retry) -> None:
    store = make_store(session.setup.checkpoints)

    def can_be_read(trial_id: str, step: int) -> bool:
        return not retry.from_scratch and not checkpoint_fault(store, session.folder, trial_id, step)

    session.recorder.retry(
        choose_retries(session.plan, session.records(), retry.selectors).trial_ids, can_be_read
    )


def _run_driver(session: OpenSweep, options: _SessionOptions, stop: threading.Event) -> None:
    """Run the driver until the sweep is finished or drained."""
    view = ThrottledView(session.snapshot, options.watch.on_change, session.start_tracking)
    view.show()
    if not session.recorder.is_finished:
        if options.driver == "inline":
            run_inline(
                session.recorder,
                _job_encoder(session, gpus=0.0),
                silence_s=silence_limit(session.plan.resources),
                on_change=view.record_change,
                stop=stop,
                check=session.check,
                debug=options.debug,
            )
        else:
            _run_ray(session, options, view, stop)
    view.show()


def _job_encoder(session: OpenSweep, gpus: float, marker: tuple[str, str] | None = None) -> JobEncoder:
    """Return the encoder of trials with `gpus`, which require the marker file `marker` of the sweep's folder.

    Relative paths in trials start at the folder from which the sweep was launched, if it is known.
    """
    setup, resources = session.setup, session.plan.resources
    return JobEncoder(
        setup.workload,
        resources.checkpoint_seconds,
        resources.cpus,
        gpus,
        setup.data_dir,
        setup.checkpoints,
        marker,
        Path.cwd() if setup.code is None else Path(setup.code),
        session.plan.keep,
        resources.working_folder,
    )


def _run_ray(
    session: OpenSweep, options: _SessionOptions, view: ThrottledView, stop: threading.Event
) -> None:
    def check() -> None:
        session.check()
        view.show_changes()

    def show_ending() -> None:
        view.show()
        options.watch.on_starting("ending Ray")

    plan, setup, folder = session.plan, session.setup, session.folder
    options.watch.on_starting("connecting to Ray" if options.address else "starting Ray")
    is_local = options.address is None
    with nullcontext(None) if is_local else requirements_with_data(plan, setup, folder) as requirements:
        marker = (requirements.mark, requirements.nonce) if requirements is not None else None
        jobs = _job_encoder(session, plan.resources.gpus, marker)
        run_ray(
            session.recorder,
            DriverOrder(plan.resources, options.address, requirements, jobs, options.num_cpus),
            folder.root / RAY_LOG_FILE,
            on_change=view.record_change,
            stop=stop,
            check=check,
            warn=options.watch.on_warning,
            on_ending=show_ending,
        )
