"""Runs every arm to its first report before anything is written: `launch --smoke` and `check --run`."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.console import complain, say
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from orchestrator.plan.types import Plan


def smoke(plan: "Plan", data_dir: Path) -> None:
    """Run every arm of `plan` to its first report, and show for each whether it came.

    Raises:
        typer.Exit: With the exit code of bad input, if an arm has failed.
    """
    from orchestrator.drivers.rehearsal import first_reports

    failed = False
    reports = first_reports(plan, data_dir)
    while True:
        with redirect_stdout(sys.stderr):  # what training code prints goes where messages go
            found = next(reports, None)
        if found is None:
            break
        arm, error = found
        failed = failed or bool(error)
        (complain if error else say)(f"{plan.name}: smoke test of {arm}: {error or 'ok'}")
    if failed:
        complain(f"{plan.name}: nothing was written; correct this first")
        raise typer.Exit(InputError.exit_code)
