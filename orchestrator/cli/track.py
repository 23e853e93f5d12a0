"""`haltsweep report` and `sync`: what is made from the ledger, at any time, as often as one likes."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from orchestrator.cli.console import complain, out, say
from orchestrator.cli.locations import command, find_sweep, runs_root, tracking_uri
from orchestrator.cli.options import Json, Runs, Storage, SweepName, Tracking
from orchestrator.cli.waiting import Waiting
from orchestrator.identity import SweepFolder
from orchestrator.redact import redact_url

if TYPE_CHECKING:
    from orchestrator.cli.reading import Opened
    from orchestrator.report.types import Report


def report(name: SweepName, runs: Runs = None, storage: Storage = None, as_json: Json = False) -> None:
    """Compute the report anew from the ledger, write it, and print it."""
    from orchestrator.cli.reading import opened
    from orchestrator.report.notes import unfinished, unread
    from orchestrator.report.tables import as_json as report_json
    from orchestrator.report.tables import as_rich, grids

    with opened(name, runs_root(runs), storage) as sweep:
        made = write_report(sweep)
    if as_json:
        sys.stdout.write(report_json(made))
        return
    for grid in grids(made):
        out().print(as_rich(grid))
    if made.power:
        say(made.power)
    if made.left:
        say(unfinished(made))
    if made.unread:
        complain(unread(made))
    say(f"written to {sweep.folder.report}")


def sync(name: SweepName, runs: Runs = None, storage: Storage = None, tracking: Tracking = None) -> None:
    """Bring report, Parquet files and MLflow up to date with the ledger; a second time writes nothing."""
    root = runs_root(runs)
    folder = find_sweep(name, root)
    with _waiting(folder, tracking) as waiting:  # before the imports, which take seconds
        waiting.update("report and Parquet are brought up to date first")
        from orchestrator.cli.reading import opened
        from orchestrator.drivers.launch_folder import read_setup

        with opened(name, root, storage) as sweep:
            uri = tracking or read_setup(sweep.folder).tracking_uri or tracking_uri(None, root)
            written = publish(sweep, write_report(sweep), uri, waiting.update)
    say(f"{sweep.plan.name}: {written}")


def _waiting(folder: SweepFolder, uri: str | None) -> Waiting:
    where = "" if uri is None else f"; it is at {redact_url(uri)}"
    return Waiting(f"Ctrl-C leaves it for `{command('sync', folder)}`{where}", "waiting for MLflow")


def write_report(sweep: "Opened") -> "Report":
    """The report of all that the ledger holds, put into the sweep's folder."""
    from orchestrator.report.details import details
    from orchestrator.report.summary import summarise
    from orchestrator.report.write import write

    records, measured = sweep.measured_records()
    made = summarise(sweep.plan, records)
    write(made, sweep.folder.report, details(sweep.plan, made, records, measured))
    return made


def publish(
    sweep: "Opened", made: "Report", uri: str, on_progress: Callable[[str], None] = lambda _: None
) -> str:
    """Parquet and MLflow in line with ledger and report; what was written, in words.

    `told` hears what MLflow is being asked for.
    """
    from orchestrator.report.summary import arm_metrics, arm_tags
    from orchestrator.tracking.sync import sync as project

    means, words = arm_metrics(made), arm_tags(made)
    return str(
        project(sweep.folder, sweep.ledger, uri, aggregates=means, on_progress=on_progress, words=words)
    )


def publish_or_complain(sweep: "Opened", made: "Report", uri: str) -> None:
    """As `publish`, for the end of a sweep: an MLflow that is away costs a line on the screen, no more.

    So does one that is not waited for any longer: Ctrl-C ends the waiting and changes nothing else.
    """
    from orchestrator.errors import StoreError

    try:
        with _waiting(sweep.folder, uri) as waiting:
            publish(sweep, made, uri, waiting.update)
        return
    except StoreError as error:
        why = str(error)
    except KeyboardInterrupt:
        why = "MLflow lacks the arms' means and the report: left at Ctrl-C."
    complain(f"{why}\nNothing is lost: `{command('sync', sweep.folder)}` catches up.")
