"""Implement `haltsweep report` and `sync`, which compute reports and MLflow runs from the ledger."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.cli.display.console import complain, out, say
from orchestrator.cli.display.waiting import Waiting
from orchestrator.cli.locations import command, find_sweep, runs_root, tracking_uri
from orchestrator.cli.options import Json, Runs, Storage, SweepName, Tracking
from orchestrator.errors import InputError
from orchestrator.files.known_addresses import require_known
from orchestrator.files.redact import redact_url
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount

if TYPE_CHECKING:
    from orchestrator.cli.reading import Opened
    from orchestrator.report.results.types import Report
    from orchestrator.tracking.summary import ArmSummary


class Figures(StrEnum):
    """File format of figures."""

    SVG = "svg"
    PDF = "pdf"


WATCH_S = 10.0
"""Minimum seconds between two reports of a running sweep."""
WATCH_SHARE = 9
"""Minimum pause between two reports, as a multiple of the duration of the last one."""


def report(
    name: SweepName,
    runs: Runs = None,
    storage: Storage = None,
    figures: Annotated[
        Figures | None, typer.Option(help="Write every figure of the page into a file too.")
    ] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="Write report.tex too, booktabs tables with figures as PDF.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again while the sweep runs; Ctrl-C ends that alone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute the report anew from the ledger, write it, and print it."""
    from orchestrator.cli.reading import opened
    from orchestrator.report.caveats.notes import verdict_lines
    from orchestrator.report.caveats.warning_texts import warning_texts
    from orchestrator.report.writers.tables import all_tables, as_rich

    if watch and as_json:
        raise InputError("--watch is for people and --json for scripts, got both; give one of them")
    with opened(name, runs_root(runs), storage) as sweep:

        def write() -> "Report":
            return write_report(sweep, figures=figures.value if figures else None, latex=latex)

        made = write_while_running(sweep, write) if watch else write()
    if as_json:
        sys.stdout.write((sweep.folder.report / "report.json").read_text(encoding="utf-8"))
        return
    for grid in all_tables(made):
        out().print(as_rich(grid))
    if made.power:
        say(made.power)
    for notice in warning_texts(made):
        complain(notice)
    say(f"written to {sweep.folder.report}")
    for line in verdict_lines(made):
        say(line)


def sync(name: SweepName, runs: Runs = None, storage: Storage = None, tracking: Tracking = None) -> None:
    """Bring report, Parquet files and MLflow up to date with the ledger; a second time writes nothing."""
    root = runs_root(runs)
    folder = find_sweep(name, root)
    with _waiting(folder, tracking) as waiting:  # before the imports, which take seconds
        waiting.update("report and Parquet are brought up to date first")
        from orchestrator.cli.reading import opened
        from orchestrator.execution.sweep.launch_folder import read_setup, refuse_copy
        from orchestrator.tracking.mlflow.mlflow_runs import check_uri

        with opened(name, root, storage) as sweep:
            setup = read_setup(sweep.folder)
            if not tracking:
                require_known(setup.tracking_uri, "--tracking")
            uri = tracking or setup.tracking_uri or tracking_uri(None, root)
            check_uri(uri)
            if setup.storage is None:  # else both write the same runs from one ledger
                refuse_copy(folder, replace(setup, tracking_uri=uri), ["tracking_uri"])
            written = publish(sweep, write_report(sweep), uri, waiting.update)
    say(f"{sweep.plan.name}: {written}")


def _waiting(folder: SweepFolder, uri: str | None) -> Waiting:
    where = "" if uri is None else f"; it is at {redact_url(uri)}"
    return Waiting(f"Ctrl-C leaves it for `{command('sync', folder)}`{where}", "waiting for MLflow")


def write_while_running(
    sweep: "Opened", write: Callable[[], "Report"], sleep: Callable[[float], None] = time.sleep
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
        began = time.monotonic()
        # Check for the end before writing, so that the last report includes the last events.
        held, seen = sweep.ledger.held(), sweep.ledger.last_seq()
        made = write()
        if not held:
            return made
        say(f"{sweep.plan.name}: {amount(made.left, 'trial')} left; {page} is up to date")
        pause = max(WATCH_S, WATCH_SHARE * (time.monotonic() - began))
        sleep(pause)
        while sweep.ledger.held() and sweep.ledger.last_seq() == seen:
            sleep(pause)


def write_report(
    sweep: "Opened", *, figures: Literal["svg", "pdf"] | None = None, latex: bool = False
) -> "Report":
    """Create the report of the complete ledger, write it to the sweep's folder and return it."""
    from orchestrator.report.results.details import details
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.writers.write import write_report_folder

    records, measured = sweep.measured_records()
    made = summarise(sweep.plan, records, sweep.spent())
    write_report_folder(
        made, sweep.folder.report, details(sweep.plan, made, records, measured), figures=figures, latex=latex
    )
    return made


def summary_of(made: "Report") -> "ArmSummary":
    """Return the summary of the arms for MLflow."""
    from orchestrator.report.results.summary import arm_metrics, arm_tags
    from orchestrator.tracking.summary import ArmSummary

    return ArmSummary(arm_metrics(made), arm_tags(made))


def publish(
    sweep: "Opened", made: "Report", uri: str, on_progress: Callable[[str], None] = lambda _: None
) -> str:
    """Bring Parquet and MLflow up to date with ledger and report; return a sentence on what was written.

    Args:
        sweep: The sweep.
        made: The current report.
        uri: URI of MLflow.
        on_progress: Called with the current request to MLflow.
    """
    from orchestrator.tracking.sync import sync as project

    return str(project(sweep.folder, sweep.ledger, uri, summary_of(made), on_progress))
