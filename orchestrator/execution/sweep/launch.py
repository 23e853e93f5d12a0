"""From a plan to a finished sweep: folder, ledger, lease, data, background writer, driver, outcome."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.conductor.retrying import Retry, choose
from orchestrator.errors import LeaseLost, Withdrawn
from orchestrator.execution.checkpoints.checkpoint_stores import Elsewhere, store_at
from orchestrator.execution.checkpoints.kept_checkpoints import is_sound
from orchestrator.execution.code_digests import origin_of
from orchestrator.execution.datasets import (
    build_datasets,
    inputs_of,
    repeated_inputs,
    require_files,
    require_same_data,
)
from orchestrator.execution.inline import run_inline
from orchestrator.execution.live_view import Listeners, ThrottledView
from orchestrator.execution.ray.node_check import needs_built
from orchestrator.execution.ray.supervisor import run_ray
from orchestrator.execution.ray.survey import check_address, require_cluster
from orchestrator.execution.signals import interrupts
from orchestrator.execution.slots import Driver, require_means
from orchestrator.execution.sweep.extend_folder import complete
from orchestrator.execution.sweep.launch_folder import (
    DEFAULT_WORKLOAD,
    Setup,
    launched_plan,
    publish,
    read_setup,
    refuse_copy,
)
from orchestrator.execution.sweep.launch_undo import clear_unbegun, refuse_foreign, withdraw, withdraw_folder
from orchestrator.execution.sweep.open_sweep import OpenSweep, SweepResult, open_sweep
from orchestrator.execution.trial.watchdog import silence_limit
from orchestrator.execution.trial.worker import load_workload
from orchestrator.files.abandoned import clear_abandoned
from orchestrator.files.known_addresses import remember, require_known
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import LeaseHeld
from orchestrator.ledger.sql.engine import connect, require_locks
from orchestrator.ledger.store import OnFenced
from orchestrator.plan.types import Plan
from orchestrator.tracking.inputs import digests_of, write_inputs
from orchestrator.tracking.mlflow.mlflow_runs import check_uri
from trainables.custom.extensions import look_in

RAY_LOG = "ray.log"
"""What Ray says of itself, in the folder of the sweep."""


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
    on_fenced: OnFenced | None = None,
) -> SweepResult:
    """Launch the sweep of `plan`, and run it to its end; `spec` is the text kept as spec.yaml.

    `address` is that of an existing Ray cluster; without it Ray runs on this machine, with `num_cpus`. To
    hear of signals, call this inside of `interrupts`. Raises InputError for what cannot be run, StoreError if
    the ledger fails, LeaseLost if somebody else took over, ExecutorError if Ray ended, Withdrawn on an
    interrupt before the first trial. What fails before that leaves nothing behind. For
    `on_fenced` see `clear_unbegun`.
    """
    remember(setup.storage, setup.tracking_uri)
    _check(setup, folder, address)
    if setup.workload == DEFAULT_WORKLOAD:
        require_files(plan)
    means = _Means(driver, address, num_cpus, watch or Listeners(), debug)
    _require(means, plan, folder, setup)
    origin = origin_of(plan, setup)
    clear_unbegun(folder, on_fenced)
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
    except LeaseLost:
        raise  # it is the sweep of another session now
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
    watch: Listeners | None = None,
    debug: bool = False,
    changed_code: bool = False,
    retry: Retry | None = None,
    on_fenced: OnFenced | None = None,
) -> SweepResult:
    """Run a launched sweep to its end, from wherever it is. Arguments and errors as of `run_sweep`.

    With `changed_code` the custom training code may differ from the code of earlier trials. `retry` names
    failed trials that run again. For `on_fenced` see `Ledger.claim`.
    """
    plan, setup = launched_plan(folder), read_setup(folder)
    require_known(setup.tracking_uri, "--tracking")
    refuse_copy(folder, setup)
    complete(folder)
    _check(setup, folder, address)
    means = _Means(driver, address, num_cpus, watch or Listeners(), debug, on_fenced)
    if address is not None:
        _require(means, plan, folder, setup)
    return _session(
        plan, folder, setup, origin_of(plan, setup), means, changed_code=changed_code, retry=retry
    )


@dataclass(frozen=True, slots=True)
class _Means:
    """What one session is run with."""

    driver: Driver
    address: str | None
    num_cpus: int | None
    watch: Listeners
    debug: bool
    """Open Python's debugger where a trial fails; `inline` only."""
    on_fenced: OnFenced | None = None
    """See `Ledger.claim`."""


def _require(means: _Means, plan: Plan, folder: SweepFolder, setup: Setup) -> None:
    """Raises InputError where trials cannot run, before anything is made."""
    if means.address is None:
        require_means(plan, means.driver, means.num_cpus)
    else:
        require_cluster(means.address, plan, setup, folder)


def _check(setup: Setup, folder: SweepFolder, address: str | None) -> None:
    """Raises InputError for what cannot work, before anything is made."""
    if setup.code is not None:
        look_in(Path(setup.code))
    load_workload(setup.workload)
    if address is not None:
        check_address(address)
    connect(setup.ledger_url(folder)).dispose()
    require_locks(setup.ledger_url(folder))
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
    *,
    changed_code: bool = False,
    retry: Retry | None = None,
) -> SweepResult:
    opening = partial(open_sweep, plan, folder, setup, origin, watch=means.watch, on_fenced=means.on_fenced)
    asked = retry.asked if retry is not None else ()
    with interrupts() as heard, opening(heard=heard, changed_code=changed_code, retry=asked) as session:
        if retry is not None:
            _retry(session, retry)
        try:
            if setup.workload == DEFAULT_WORKLOAD and not session.recorder.finished:
                build_datasets(plan, setup.data_dir, means.watch.on_data, means.watch.building)
                for repeated in repeated_inputs(plan, setup.data_dir):
                    means.watch.on_trouble(repeated)
                inputs = inputs_of(plan, setup.data_dir)
                if not changed_code:
                    require_same_data(plan, session.known(), digests_of(inputs))
                write_inputs(folder, inputs)
                session.recorder.data_are_there(digests_of(inputs))
            with heard.draining():
                _drive(session, means, heard.stop)
            session.interrupted = heard.stop.is_set() and not session.recorder.finished
        except KeyboardInterrupt:
            session.interrupted = True
    # Here too: after a killed session there may be nothing left to do for Ray, which clears away otherwise.
    clear_abandoned()
    return session.finish


def _retry(session: OpenSweep, retry: Retry) -> None:
    store = store_at(session.setup.checkpoints)

    def can_be_read(trial_id: str, step: int) -> bool:
        return not retry.from_scratch and is_sound(store, session.folder, trial_id, step)

    session.recorder.retry(choose(session.plan, session.known(), retry.asked).trial_ids, can_be_read)


def _drive(session: OpenSweep, means: _Means, stop: threading.Event) -> None:
    """Let the driver run until everything is done or drained."""
    view = ThrottledView(session.snapshot, means.watch.on_change, session.begin)
    view.show()
    if not session.recorder.finished:
        if means.driver == "inline":
            _run_inline(session, view, stop, debug=means.debug)
        else:
            _run_ray(session, means, view, stop)
    view.show()


def _run_inline(session: OpenSweep, view: ThrottledView, stop: threading.Event, *, debug: bool) -> None:
    run_inline(
        session.recorder,
        session.setup.workload,
        data_dir=session.setup.data_dir,
        checkpoint_seconds=session.plan.resources.checkpoint_seconds,
        silence_s=silence_limit(session.plan.resources),
        checkpoints=session.setup.checkpoints,
        on_change=view.changed,
        stop=stop,
        check=session.check,
        cpus=session.plan.resources.cpus,
        launch_folder=_launch_folder(session.setup),
        working_folder=session.plan.resources.working_folder,
        keep=session.plan.keep,
        debug=debug,
    )


def _launch_folder(setup: Setup) -> Path:
    """Return the folder from which the sweep was launched; the current one if that is unknown."""
    return Path.cwd() if setup.code is None else Path(setup.code)


def _run_ray(session: OpenSweep, means: _Means, view: ThrottledView, stop: threading.Event) -> None:
    def check() -> None:
        session.check()
        view.catch_up()

    plan, setup, folder = session.plan, session.setup, session.folder
    means.watch.on_starting("connecting to Ray" if means.address else "starting Ray")
    others = nullcontext(None) if means.address is None else needs_built(plan, setup, folder)
    with others as needs:
        run_ray(
            session.recorder,
            setup.workload,
            resources=plan.resources,
            data_dir=setup.data_dir,
            launch_folder=_launch_folder(setup),
            keep=plan.keep,
            checkpoints=setup.checkpoints,
            needs=needs,
            address=means.address,
            num_cpus=means.num_cpus,
            log=folder.root / RAY_LOG,
            on_change=view.changed,
            stop=stop,
            check=check,
            warn=means.watch.on_trouble,
        )
