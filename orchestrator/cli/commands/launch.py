"""Implement `haltsweep launch` and `resume`, which run a sweep to its end and print its results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.console import out, print_error, print_line
from orchestrator.cli.display.lease_messages import report_fenced
from orchestrator.cli.locations import (
    budget_advice,
    command,
    data_root,
    error_advice,
    failure_advice,
    launch_tracking_uri,
    runs_root,
)
from orchestrator.cli.options import (
    Address,
    Checkpoints,
    Data,
    LaunchTracking,
    Overrides,
    Profile,
    Runs,
    SpecPath,
    Storage,
    SweepName,
    TakeOver,
)
from orchestrator.cli.planning import check_trainable, omitted_results, read_and_plan
from orchestrator.cli.smoke_test import run_smoke_test
from orchestrator.errors import InputError, SearchError, StoreError
from orchestrator.files.file_digests import damaged_files, read_manifest
from orchestrator.files.redact import redact_url
from orchestrator.garbage import collect_normally
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount

if TYPE_CHECKING:
    from orchestrator.conductor.retrying import Retry
    from orchestrator.execution.sweep.launch_folder import Setup
    from orchestrator.execution.sweep.open_sweep import SweepResult
    from orchestrator.plan.types import Plan
    from orchestrator.report.results.types import Report
    from orchestrator.spec.load import SpecFile
    from orchestrator.tracking.summary import ArmSummary


class Driver(StrEnum):
    """Driver that runs the trials."""

    RAY = "ray"
    INLINE = "inline"


DriverOption = Annotated[
    Driver | None,
    typer.Option(
        help="ray: run trials in parallel, here or on a cluster; inline: one trial at a time. Default: the "
        "driver of the launch, else ray."
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--pdb", help="With --driver inline: run trials in this process, and open the debugger if one fails."
    ),
]
Smoke = Annotated[
    bool,
    typer.Option("--smoke", help="First run every arm to its first report; launch nothing if an arm fails."),
]
Shared = Annotated[
    bool, typer.Option("--shared", help="Let other users enter the sweep's folder, as the umask allows.")
]
ChangedCode = Annotated[
    bool,
    typer.Option(
        "--changed-code", help="Continue even if training code or data changed after trials had run."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as `haltsweep plan` does.")]
Continue = Annotated[
    bool, typer.Option("--continue", help="Resume the sweep if the same spec was launched before.")
]


def launch(
    spec: SpecPath,
    overrides: Overrides = None,
    profile: Profile = None,
    dry_run: DryRun = False,
    continue_existing: Continue = False,
    changed_code: ChangedCode = False,
    take_over: TakeOver = False,
    smoke: Smoke = False,
    cpus: Annotated[float | None, typer.Option(help="CPUs of each trial.")] = None,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs of each trial; with 0.25, four trials share a GPU.")
    ] = None,
    driver: DriverOption = None,
    address: Address = None,
    debug: Debug = False,
    runs: Runs = None,
    data: Data = None,
    storage: Storage = None,
    tracking: LaunchTracking = None,
    checkpoints: Checkpoints = None,
    shared: Shared = False,
) -> None:
    """Run a spec: search every arm, train the best params on new seeds, and print the comparison."""
    from orchestrator.cli.commands import check

    changes, chosen_driver = [*(overrides or ()), *_resource_overrides(cpus, gpus)], driver or Driver.RAY
    if dry_run:
        check.plan(spec, changes, profile, runs=runs)
        return
    _check_driver(chosen_driver, address, debug=debug)
    spec_file, plan = read_and_plan(spec, changes, profile, runs=runs)
    from orchestrator.execution.sweep.launch import run_sweep
    from orchestrator.execution.sweep.launch_folder import refuse_existing
    from orchestrator.execution.sweep.launch_undo import clear_unstarted
    from orchestrator.plan.serialise import read_plan
    from orchestrator.spec.load import to_yaml

    root = runs_root(runs)
    folder = SweepFolder(root / plan.name)
    if continue_existing and folder.plan.is_file() and read_plan(folder).spec_digest == plan.spec_digest:
        resume(str(folder.root), driver, address, debug, changed_code=changed_code, take_over=take_over)
        return
    tracking_uri = launch_tracking_uri(tracking, root)
    setup = _make_setup(plan, data_root(data), tracking_uri, chosen_driver, checkpoints)
    setup = replace(setup, storage=storage, shared=shared)
    _check_stores(setup)
    on_fenced = report_fenced if take_over else None
    clear_unstarted(folder, on_fenced)
    refuse_existing(plan, folder)
    if smoke:
        run_smoke_test(plan, setup.data_dir)
    _print_start(spec_file, plan, folder, chosen_driver)
    spec_text = to_yaml(spec_file.spec)
    start = partial(run_sweep, plan, folder, setup, spec_text, on_fenced=on_fenced, debug=debug)
    _run_and_report(plan, folder, partial(start, driver=chosen_driver.value, address=address), debug=debug)


def resume(
    name: SweepName,
    driver: DriverOption = None,
    address: Address = None,
    debug: Debug = False,
    changed_code: ChangedCode = False,
    take_over: TakeOver = False,
    retry: Annotated[
        list[str] | None,
        typer.Option(
            help="Run failed trials again, also of a finished sweep. WHICH: crashed, timed_out, "
            "out_of_memory, diverged, failed (all of these except diverged), or a trial by id or "
            "ARM/PHASE/NUMBER.",
            metavar="WHICH,...",
        ),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="With --retry: start the trials without their checkpoints.")
    ] = False,
    runs: Runs = None,
) -> None:
    """Continue a sweep that was interrupted or killed, or run its failed trials again with --retry.

    The sweep keeps all measurements of earlier sessions.
    """
    from orchestrator.cli.stored_sweep import launched_sweep
    from orchestrator.execution.sweep.launch import resume_sweep
    from orchestrator.execution.sweep.launch_folder import read_setup

    given_driver = driver or (None if address is None else Driver.RAY)
    if given_driver is not None:
        _check_driver(given_driver, address, debug=debug)
    folder, sweep_plan, _ = launched_sweep(name, runs_root(runs))
    retries = _select_retries(folder, sweep_plan, retry or (), from_scratch=from_scratch)
    if retry and retries is None:
        return
    setup = read_setup(folder)
    chosen_driver = given_driver or Driver(setup.driver)
    _check_driver(chosen_driver, address, debug=debug)
    check_trainable(setup)
    is_inline_again = given_driver is None and chosen_driver is Driver.INLINE
    driver_text = ", with --driver inline as launched" * is_inline_again
    _warn_about_edited_spec(folder)
    _warn_about_missing_gpus(sweep_plan, chosen_driver)
    on_fenced = report_fenced if take_over else None
    start = partial(resume_sweep, folder, changed_code=changed_code, retry=retries, on_fenced=on_fenced)
    start = partial(start, driver=chosen_driver.value, address=address, debug=debug)
    opening_line = f"{sweep_plan.name}: resuming, in {folder.root}{driver_text}"
    _run_and_report(sweep_plan, folder, start, debug=debug, opening_line=opening_line)


def _select_retries(
    folder: SweepFolder, plan: "Plan", selectors: Sequence[str], *, from_scratch: bool
) -> "Retry | None":
    """Return the trials selected by `--retry`; None without `--retry`, or if no trial is left to run.

    Raises:
        InputError: A name matches no trial that can be retried.
    """
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.conductor.retrying import Retry, choose_retries

    words = [word for selector in selectors for word in map(str.strip, selector.split(",")) if word]
    if not words:
        if selectors or from_scratch:
            raise InputError("--retry must name the trials to run again, e.g. --retry failed, got none")
        return None
    with open_stored_sweep(str(folder.root), folder.root.parent) as sweep:
        records = sweep.newest_records()
    trials = choose_retries(plan, records, words)
    for message in trials.skip_messages:
        print_error(message)
    if trials.trial_ids:
        print_line(f"{plan.name}: {amount(len(trials.trial_ids), 'failed trial')} will run again")
        return Retry(tuple(words), from_scratch)
    ended_ids = {record.trial_id for record in records if record.outcome and record.outcome.is_final}
    num_left = sum(trial.trial_id not in ended_ids for trial in plan.trials)
    remaining_text = f"; {amount(num_left, 'trial')} left to run" if num_left else ""
    print_line(f"{plan.name}: nothing to retry{remaining_text}")
    return Retry(tuple(words), from_scratch) if num_left else None


def _warn_about_edited_spec(folder: SweepFolder) -> None:
    """Print a warning if the sweep's own spec was edited, since the edit has no effect."""
    if read_manifest(folder.root) is not None and damaged_files(folder.root).get(folder.spec.name):
        print_error(
            f"{folder.spec} was changed since the launch, and the sweep still runs the plan of the launch; "
            f"to add to it: `{command('extend', folder)} SPEC`; another question: `launch` with another name"
        )


def _make_setup(
    plan: "Plan", data_dir: Path, tracking: str | None, driver: Driver, checkpoints: str | None
) -> "Setup":
    """Return the setup for trials of `plan`. Raise `InputError` for an unusable URI of checkpoints."""
    from orchestrator.execution.checkpoints.checkpoint_uris import check_uri, sweep_uri
    from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup

    if checkpoints is not None:
        check_uri(checkpoints)
        checkpoints = sweep_uri(checkpoints, plan.name)
    return Setup(
        data_dir,
        workload=plan.trainable or DEFAULT_WORKLOAD,
        code=str(Path.cwd()),  # the current directory may contain custom modules
        tracking_uri=tracking,
        driver=driver.value,
        checkpoints=checkpoints,
    )


def _resource_overrides(cpus: float | None, gpus: float | None) -> list[str]:
    values = {"resources.cpus": cpus, "resources.gpus": gpus}
    return [f"{key}={value!r}" for key, value in values.items() if value is not None]


def _check_driver(driver: Driver, address: str | None, *, debug: bool) -> None:
    if debug and driver is not Driver.INLINE:
        raise InputError(
            f"--pdb requires --driver inline, which runs trials in this process, got --driver "
            f"{driver.value}; give --driver inline"
        )
    if address is not None and driver is not Driver.RAY:
        raise InputError(
            f"--address requires --driver ray, got --driver {driver.value} and --address "
            f"{redact_url(address)}; drop one"
        )


def _print_start(spec_file: "SpecFile", sweep_plan: "Plan", folder: SweepFolder, driver: Driver) -> None:
    from orchestrator.plan.display.render import plan_warnings
    from orchestrator.plan.space_check.objective_descriptions import objective_lines

    counts = f"{amount(len(sweep_plan.arms), 'arm')}, {amount(len(sweep_plan.trials), 'trial')}"
    print_line(f"{sweep_plan.name}: {counts}, in {folder.root}")
    if message := omitted_results(spec_file):
        print_line(message)
    _warn_about_missing_gpus(sweep_plan, driver)
    for line in objective_lines(sweep_plan, unusual=True):
        print_line(line)
    for line in plan_warnings(sweep_plan):
        print_error(line)


def _warn_about_missing_gpus(plan: "Plan", driver: Driver) -> None:
    from orchestrator.execution.slots import missing_gpus

    if message := missing_gpus(plan, driver.value):
        print_error(message)


def _check_stores(setup: "Setup") -> None:
    """Raise `InputError` or `StoreError` for unusable stores, before a folder is created.

    An unreachable MLflow server does not block training, since it is synchronised later.
    """
    from orchestrator.ledger.sql.engine import require_reachable
    from orchestrator.tracking.mlflow.mlflow_runs import check_uri

    if setup.tracking_uri is not None:
        check_uri(setup.tracking_uri)
    if setup.storage is not None:
        require_reachable(setup.storage)


def _run_and_report(
    plan: "Plan",
    folder: SweepFolder,
    start: "Callable[..., SweepResult]",
    *,
    debug: bool = False,
    opening_line: str = "",
) -> None:
    """Run a sweep with a live view, or plain lines for a debugger, then report and exit with its code.

    Print `opening_line` once the session is open.
    """
    from orchestrator.cli.commands.track import summarise_arms
    from orchestrator.cli.display.progress import View, make_failure_warning
    from orchestrator.execution.live_view import Listeners
    from orchestrator.execution.signals import interrupts
    from trainables.data.progress import Watcher
    from trainables.data.store import DataError

    collect_normally()
    view = View(plan, live=not debug)
    reports: list[Report] = []

    def report() -> "ArmSummary | None":
        view.show_starting("writing the report")
        try:
            reports.append(_report(folder))
        except KeyboardInterrupt:
            print_error(f"Ctrl-C interrupted the report; `{command('report', folder)}` writes it")
            return None
        return summarise_arms(reports[0])

    with interrupts(view.show_interrupt) as interrupt:
        try:
            with view:
                building = Watcher(view.show_build, print_error)
                listeners = Listeners(
                    view.show,
                    view.show_data,
                    building,
                    on_starting=view.show_starting,
                    on_open=lambda: print_line(opening_line) if opening_line else None,
                    on_warning=print_error,
                    on_failure=make_failure_warning(plan, command("status", folder)),
                    on_end=report,
                    on_tracking=view.show_tracking,
                    on_outage=view.show_outage,
                )
                result = start(watch=listeners)
        except DataError as error:
            raise StoreError(f"{error}; then {_next_step_text(folder)}") from error
        except SearchError as error:
            raise SearchError(f"{error}; correct it, then {_next_step_text(folder)}") from error
        verdicts = [] if interrupt.exit_now.is_set() or not reports else _print_report(reports[0])
        _print_results(folder, result, is_new_report=bool(reports))
        for line in verdicts:
            print_line(line)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _next_step_text(folder: SweepFolder) -> str:
    return f"`{command('resume', folder)}`" if folder.plan.is_file() else "launch it again"


def _report(folder: SweepFolder) -> "Report":
    """Write the report of the current results."""
    from orchestrator.cli.commands.track import write_report
    from orchestrator.cli.stored_sweep import open_stored_sweep

    with open_stored_sweep(str(folder.root), folder.root.parent) as sweep:
        return write_report(sweep)


def _print_report(report: "Report") -> list[str]:
    """Print the headline tables, and return the verdicts as sentences."""
    from orchestrator.report.caveats.notes import verdict_lines
    from orchestrator.report.caveats.warning_texts import warning_texts
    from orchestrator.report.writers.tables import as_rich, screen_tables

    for grid in screen_tables(report):
        out().print(as_rich(grid))
    for notice in warning_texts(report):
        print_error(notice)
    if report.power:
        print_line(report.power)
    return verdict_lines(report)


def _print_results(folder: SweepFolder, result: "SweepResult", *, is_new_report: bool) -> None:
    """Print the results of the session, their location, and next steps."""
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.tracking.state import read_state

    counts = ", ".join(f"{count} {kind.value}" for kind, count in sorted(result.counts.items()))
    remaining_text = f", {result.left} left" if result.left else ""
    unstarted_text = (
        f" ({result.num_never_started} of the failed trials never started)"
        if result.num_never_started
        else ""
    )
    print_line(f"trials: {counts or 'none ended'}{remaining_text}{unstarted_text}")
    if num_failed := sum(count for kind, count in result.counts.items() if kind.is_failure):
        print_error(failure_advice(num_failed, folder, with_retry=not result.failing))
    if result.failing:
        print_error(error_advice(result.failing, folder))
    elif result.spent:
        print_error(budget_advice(result.spent, folder))
    elif result.left:
        print_error(f"continue with: {command('resume', folder)}")
    if result.tracking_pid is not None:
        print_error(
            f"MLflow is slow and not complete yet ({result.untracked}). Process {result.tracking_pid} writes "
            f"the rest in the background; check its progress with: {command('status', folder)}"
        )
    elif result.untracked:
        print_error(f"MLflow or the Parquet files are incomplete: {result.untracked}")
        print_error(f"catch up with: {command('sync', folder)}")
    if (page := folder.report / "report.html").exists():
        stale_text = f" (of an earlier state; `{command('report', folder)}` updates it)"
        print_line(f"report:  {page}{stale_text * (not is_new_report)}")
    if read_setup(folder).tracking_uri is None:
        content = "the sweep" if read_state(folder) is None else "new results"
        print_line(f"not tracked: {command('sync', folder)} writes {content} to MLflow")
    else:
        print_line(f"MLflow UI: {command('ui', folder)}")
