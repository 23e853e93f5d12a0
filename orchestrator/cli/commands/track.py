"""Implement `haltsweep report` and `sync`, which compute reports and MLflow runs from the ledger."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.cli.display.console import out, print_error, print_line
from orchestrator.cli.display.wait_display import WaitDisplay
from orchestrator.cli.locations import command, find_sweep, runs_root, tracking_uri
from orchestrator.cli.options import Json, Runs, Storage, SweepName, Tracking
from orchestrator.errors import InputError
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import redact_url
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount

if TYPE_CHECKING:
    from orchestrator.cli.stored_sweep import StoredSweep
    from orchestrator.report.results.types import Report
    from orchestrator.tracking.summary import ArmSummary


class FigureFormat(StrEnum):
    """File format of figures."""

    SVG = "svg"
    PDF = "pdf"


MIN_PAUSE_S = 10.0
"""Minimum seconds between two reports of a running sweep."""
PAUSE_FACTOR = 9
"""Minimum pause between two reports, as a multiple of the duration of the last one."""


def report(
    name: SweepName,
    runs: Runs = None,
    storage: Storage = None,
    figures: Annotated[
        FigureFormat | None,
        typer.Option(help="Also write every figure of the page to a file of this format."),
    ] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="Also write report.tex with booktabs tables, and figures as PDF.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Update the report while the sweep runs; Ctrl-C ends only the updates."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute the report of a sweep, write it to the sweep's folder and print its tables."""
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.report.caveats.notes import verdict_lines
    from orchestrator.report.caveats.warning_texts import warning_texts
    from orchestrator.report.writers.tables import all_tables, as_rich

    if watch and as_json:
        raise InputError("--watch and --json exclude each other, got both. Give one of them.")
    with open_stored_sweep(name, runs_root(runs), storage) as sweep:

        def write() -> "Report":
            return write_report(sweep, figures=figures.value if figures else None, latex=latex)

        new_report = write_while_running(sweep, write) if watch else write()
    if as_json:
        sys.stdout.write((sweep.folder.report / "report.json").read_text(encoding="utf-8"))
        return
    for grid in all_tables(new_report):
        out().print(as_rich(grid))
    if new_report.power:
        print_line(new_report.power)
    for notice in warning_texts(new_report):
        print_error(notice)
    print_line(f"written to {sweep.folder.report}")
    for line in verdict_lines(new_report):
        print_line(line)


def sync(name: SweepName, runs: Runs = None, storage: Storage = None, tracking: Tracking = None) -> None:
    """Update the report, the Parquet files and MLflow with all results of a sweep."""
    root = runs_root(runs)
    folder = find_sweep(name, root)
    with _wait_display(folder, tracking) as wait_display:  # before the imports, which take seconds
        wait_display.update("loading haltsweep")
        from orchestrator.cli.stored_sweep import open_stored_sweep
        from orchestrator.execution.sweep.launch_folder import read_setup, refuse_copy
        from orchestrator.tracking.mlflow.mlflow_runs import check_uri

        wait_display.update("reading the ledger")
        with open_stored_sweep(name, root, storage) as sweep:
            setup = read_setup(sweep.folder)
            if not tracking:
                require_known(setup.tracking_uri, "--tracking")
            uri = tracking or setup.tracking_uri or tracking_uri(None, root)
            check_uri(uri)
            if setup.storage is None:  # otherwise both copies would write the same runs from one ledger
                refuse_copy(folder, replace(setup, tracking_uri=uri), ["tracking_uri"])
            wait_display.update("writing the report")
            summary = publish(sweep, write_report(sweep), uri, wait_display.update)
    print_line(f"{sweep.plan.name}: {summary}")


def _wait_display(folder: SweepFolder, uri: str | None) -> WaitDisplay:
    location = "" if uri is None else f"; it is at {redact_url(uri)}"
    return WaitDisplay(f"Ctrl-C postpones it to `{command('sync', folder)}`{location}", "sync")


def write_while_running(
    sweep: "StoredSweep", write: Callable[[], "Report"], sleep: Callable[[float], None] = time.sleep
) -> "Report":
    """Write the report now and after every new event until the sweep ends; return the last report.

    Writing reports takes at most a tenth of the time.

    Args:
        sweep: The sweep.
        write: Writes a report and returns it.
        sleep: Waits for a number of seconds.
    """
    page = sweep.folder.report / "report.html"
    while True:
        started_at = time.monotonic()
        # Check for the end before writing, so that the last report includes the last events.
        is_locked, last_seq = sweep.ledger.is_held(), sweep.ledger.last_seq()
        new_report = write()
        if not is_locked:
            return new_report
        print_line(f"{sweep.plan.name}: {amount(new_report.left, 'trial')} left; {page} is up to date")
        pause = max(MIN_PAUSE_S, PAUSE_FACTOR * (time.monotonic() - started_at))
        sleep(pause)
        while sweep.ledger.is_held() and sweep.ledger.last_seq() == last_seq:
            sleep(pause)


def write_report(
    sweep: "StoredSweep", *, figures: Literal["svg", "pdf"] | None = None, latex: bool = False
) -> "Report":
    """Create the report of the complete ledger, write it to the sweep's folder and return it."""
    from orchestrator.report.results.details import details
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.writers.write import write_report_folder

    records, measured = sweep.measured_records()
    new_report = summarise(sweep.plan, records, sweep.exhausted_budget())
    page = details(sweep.plan, new_report, records, measured)
    write_report_folder(new_report, sweep.folder.report, page, figures=figures, latex=latex)
    return new_report


def summarise_arms(new_report: "Report") -> "ArmSummary":
    """Return the summary of the arms for MLflow."""
    from orchestrator.report.results.tracked_values import arm_metrics, arm_tags
    from orchestrator.tracking.summary import ArmSummary

    return ArmSummary(arm_metrics(new_report), arm_tags(new_report))


def publish(
    sweep: "StoredSweep", new_report: "Report", uri: str, on_progress: Callable[[str], None] = lambda _: None
) -> str:
    """Bring Parquet and MLflow up to date with ledger and report; return a sentence on what was written.

    Args:
        sweep: The sweep.
        new_report: The current report.
        uri: URI of MLflow.
        on_progress: Called with the current step: the Parquet files, or a request to MLflow.
    """
    from orchestrator.tracking.sync import sync as project

    return str(project(sweep.folder, sweep.ledger, uri, summarise_arms(new_report), on_progress))
