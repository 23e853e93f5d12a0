"""Implement `haltsweep check`, `plan` and `schema`, which inspect specs without writing files."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.console import complain, emit_json, out, say
from orchestrator.cli.options import Data, Json, Overrides, Profile, Runs, SpecPath
from orchestrator.cli.planning import left_out, planned
from orchestrator.errors import InputError
from search_spaces.wording import shown
from trainables.custom.source_files import names_file

if TYPE_CHECKING:
    from orchestrator.plan.types import Plan


def check(
    files: Annotated[list[Path], typer.Argument(help="Spec files.")],
    run: Annotated[
        bool, typer.Option("--run", help="Also run every arm to its first report, in a temporary folder.")
    ] = False,
    data: Data = None,
) -> None:
    """Validate specs with all of their profiles, and show every error with file and line."""
    from orchestrator.cli.locations import data_root
    from orchestrator.cli.side_by_side import check_all

    if overrides := [str(path) for path in files if "=" in str(path) and not names_file(path)]:
        raise InputError(
            f"check must be given spec files alone, got {shown(overrides[0])}; an override goes with one "
            "spec: `haltsweep plan SPEC KEY=VALUE`"
        )
    failed = False
    for path, checked in zip(files, check_all(files), strict=True):
        if checked.faults:
            failed = True
            complain("\n".join(checked.faults))
        else:
            profiles = f" (and with {', '.join(checked.profiles)})" if checked.profiles else ""
            say(f"{path}: ok{profiles}")
            for line in checked.warnings:
                complain(line)
    if failed:
        raise typer.Exit(2)
    for path in files if run else ():
        from orchestrator.cli.smoke import smoke

        smoke(planned(path)[1], data_root(data))


def plan(
    spec: SpecPath,
    overrides: Overrides = None,
    profile: Profile = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Time a few real training steps of every arm.")
    ] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Dry run: arms and what they change, trials, proof of ablation, price, and what the seeds can show."""
    read, made = planned(spec, overrides or (), profile, calibrate=calibrate, runs=runs)
    if as_json:
        from orchestrator.plan.serialise import to_json

        sys.stdout.write(json.dumps(json.loads(to_json(made)), indent=2) + "\n")
        return
    from orchestrator.cli.hours import hours_of
    from orchestrator.plan.display.render import render

    for part in render(made):
        out().print(part)
    if message := hours_of(made, runs):
        out().print(message)
    if message := left_out(read):
        out().print(message)
    _tell_what_is_missing(made)


def _tell_what_is_missing(made: "Plan") -> None:
    """Print why a launch on this machine would fail, since a plan needs neither data nor a GPU."""
    from orchestrator.execution.datasets import require_files
    from orchestrator.execution.slots import require_local_resources

    for require in (require_files, partial(require_local_resources, driver="ray", num_cpus=None)):
        try:
            require(made)
        except InputError as error:
            complain(f"launch will not start here: {error}")


def schema() -> None:
    """Print the JSON Schema of specs, for editors that complete and check YAML."""
    from orchestrator.spec.schema import json_schema

    emit_json(json_schema())
