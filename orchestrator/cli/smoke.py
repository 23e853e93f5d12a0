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
    """Run every arm of `plan` to its first report, and print for each arm whether it reported.

    Raises:
        typer.Exit: An arm failed; the exit code is that of bad input.
    """
    from orchestrator.drivers.rehearsal import first_reports

    failed = False
    reports = first_reports(plan, data_dir)
    while True:
        with redirect_stdout(sys.stderr):  # output of training code goes to standard error, as messages do
            found = next(reports, None)
        if found is None:
            break
        arm, error = found
        failed = failed or bool(error)
        (complain if error else say)(f"{plan.name}: smoke test of {arm}: {error or 'ok'}")
    if failed:
        complain(f"{plan.name}: the sweep was not launched; correct the errors first")
        raise typer.Exit(InputError.exit_code)
