"""`haltsweep check`, `plan`, `schema`: all that can be known before anything starts. Nothing is written."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import complain, emit_json, out, say
from orchestrator.cli.options import Json, Overrides, Profile, SpecPath
from orchestrator.errors import InputError


def check(files: Annotated[list[Path], typer.Argument(help="Spec files.")]) -> None:
    """Validate specs, each with all of its profiles: every fault at once, with file and line."""
    from orchestrator.plan.planner import plan as make_plan
    from orchestrator.spec.load import profile_names, read_spec

    failed = False
    for path in files:
        told: set[str] = set()
        try:
            profiles: list[str | None] = [None, *profile_names(path)]
        except InputError as error:
            profiles, told = [], {str(error)}
        for profile in profiles:
            try:
                make_plan(read_spec(path, profile=profile))
            except InputError as error:
                told |= {line for line in str(error).splitlines() if line.partition(" (with")[0] not in told}
        if told:
            failed = True
            complain("\n".join(sorted(told)))
        else:
            with_profiles = f" (and with {', '.join(filter(None, profiles))})" if len(profiles) > 1 else ""
            say(f"{path}: ok{with_profiles}")
    if failed:
        raise typer.Exit(2)


def plan(
    spec: SpecPath,
    overrides: Overrides = None,
    profile: Profile = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Time a few real training steps of every arm.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Dry run: arms and what they change, trials, proof of ablation, price, and what the seeds can show."""
    from orchestrator.plan.planner import plan as make_plan
    from orchestrator.spec.load import read_spec

    made = make_plan(read_spec(spec, overrides or (), profile), calibrate=calibrate)
    if as_json:
        from orchestrator.plan.serialise import to_json

        sys.stdout.write(json.dumps(json.loads(to_json(made)), indent=2) + "\n")
        return
    from orchestrator.plan.render import render

    for part in render(made):
        out().print(part)


def schema() -> None:
    """Print the JSON Schema of specs, for editors that complete and check YAML."""
    from orchestrator.spec.schema import json_schema

    emit_json(json_schema())
