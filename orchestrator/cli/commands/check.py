"""Implement `haltsweep check`, `plan` and `schema`, which inspect specs without writing files."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from orchestrator.cli.display.console import emit_json, out, print_error, print_line
from orchestrator.cli.options import Data, Json, Overrides, Profile, Runs, SpecPath
from orchestrator.cli.planning import isolate_custom_code, omitted_results, read_and_plan
from orchestrator.cli.smoke_test import run_smoke_test
from orchestrator.errors import InputError
from search_spaces.wording import format_value
from trainables.custom.source_files import is_existing_file

if TYPE_CHECKING:
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile


def check(
    files: Annotated[list[Path], typer.Argument(help="Spec files (YAML).")],
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Also run every arm to its first report, and a confirm trial for at most 30 seconds.",
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Validate specs with all of their profiles, and show errors with file and line."""
    from orchestrator.cli.locations import data_root

    if overrides := [str(path) for path in files if "=" in str(path) and not is_existing_file(path)]:
        raise InputError(
            f"check accepts only spec files, got {format_value(overrides[0])}; give overrides with a single "
            "spec: `haltsweep plan SPEC KEY=VALUE`"
        )
    has_failed = False
    closing_warnings: list[str] = []
    get_probe = cache(_new_probe)  # specs share models that were built
    plans: list[Plan] = []
    for path in files:
        result = _check_file(path, get_probe)
        if result.plan is not None:
            plans.append(result.plan)
        if result.closing_warning and not result.faults:
            line = result.closing_warning
            closing_warnings.append(f"{path}: {line}" if len(files) > 1 else line)
        has_failed |= bool(result.faults)
        if not result.faults:
            profile_text = f" (and with {', '.join(result.profiles)})" if result.profiles else ""
            print_line(f"{path}: {'valid' if run else 'ok'}{profile_text}")
        for line in result.faults or result.warnings:
            print_error(line)
    for sweep_plan in plans if run and not has_failed else ():
        try:
            run_smoke_test(sweep_plan, data_root(data))
        except typer.Exit:
            has_failed = True
        _warn_about_missing_resources(sweep_plan)
    for line in closing_warnings:
        print_error(line)
    if has_failed:
        raise typer.Exit(2)


def _new_probe() -> "Probe":
    from orchestrator.plan.ablation_check.probe import Probe

    return Probe(faults_only=True)


class _CheckedFile(NamedTuple):
    """Faults and warnings of a spec with and without each of its profiles, each line once."""

    faults: Sequence[str]
    profiles: Sequence[str] = ()
    warnings: Sequence[str] = ()
    closing_warning: str = ""
    """Warning if the spec, without a profile, permits no verdict; else empty."""
    plan: "Plan | None" = None
    """Plan of the spec without a profile; None if it is faulty."""


def _check_file(path: Path, get_probe: "Callable[[], Probe]") -> _CheckedFile:
    """Plan a spec with and without each of its profiles; one child process imports custom code for all."""
    from orchestrator.plan.plan_input import read_plannable_spec

    try:
        source = read_plannable_spec(path)
        return isolate_custom_code(source, partial(_check_profiles, path, source, get_probe))
    except InputError as error:  # the spec is invalid, or its code ended the child process
        return _CheckedFile(list(dict.fromkeys(str(error).splitlines())))
    except (Exception, SystemExit) as error:
        return _CheckedFile([_custom_code_fault(path, error)])


def _check_profiles(path: Path, source: "SpecFile", get_probe: "Callable[[], Probe]") -> _CheckedFile:
    from orchestrator.spec.load import profile_names

    faults: dict[str, str] = {}
    warnings: dict[str, None] = {}
    closing_warning, plan = "", None
    profiles = profile_names(path)
    for profile in (None, *profiles):
        try:
            parsed = source if profile is None else None
            _, plan_of_profile = read_and_plan(path, profile=profile, probe=get_probe, parsed=parsed)
        except InputError as error:
            suffix = f" (with the profile {profile!r})" if profile else ""
            faults |= {line: line + suffix for line in str(error).splitlines() if line not in faults}
        except (Exception, SystemExit) as error:
            faults.setdefault(fault := _custom_code_fault(path, error), fault)
        else:
            from orchestrator.plan.display.render import no_verdict_warning, plan_warnings

            if profile is None:
                plan, closing_warning = plan_of_profile, no_verdict_warning(plan_of_profile)
            warnings |= dict.fromkeys(plan_warnings(plan_of_profile))
        if faults and profile is None:
            break  # a faulty spec is faulty with every profile
    return _CheckedFile(list(faults.values()), profiles, list(warnings), closing_warning, plan)


def _custom_code_fault(path: Path, error: BaseException) -> str:
    """Return an exception of custom code as a fault of the spec; reraise any other exception."""
    from trainables.custom.extensions import custom_code_error

    if not (fault := custom_code_error(error)):
        raise error
    return f"{path}: {fault}"


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
    """Show arms, trials, estimated cost and detectable differences of a spec; run no trial."""
    spec_file, sweep_plan = read_and_plan(spec, overrides or (), profile, calibrate=calibrate, runs=runs)
    if as_json:
        from orchestrator.plan.serialise import to_json

        sys.stdout.write(json.dumps(json.loads(to_json(sweep_plan)), indent=2) + "\n")
        return
    from orchestrator.cli.duration_estimate import estimate_duration
    from orchestrator.plan.display.render import render

    for part in render(sweep_plan):
        out().print(part)
    if message := estimate_duration(sweep_plan, runs):
        out().print(message)
    elif sweep_plan.trainable is None:
        out().print(f"For an estimate in minutes: haltsweep plan --calibrate {shlex.quote(str(spec))}")
    if message := omitted_results(spec_file):
        out().print(message)
    _warn_about_missing_resources(sweep_plan)


def _warn_about_missing_resources(sweep_plan: "Plan") -> None:
    """Print why a launch on this machine would fail; a plan alone needs neither data nor a GPU."""
    from orchestrator.execution.datasets import require_files
    from orchestrator.execution.slots import require_local_resources

    for require in (require_files, partial(require_local_resources, driver="ray", num_cpus=None)):
        try:
            require(sweep_plan)
        except InputError as error:
            print_error(f"launch will not start here: {error}")


def schema() -> None:
    """Print the JSON Schema of specs, for editors that complete and check YAML."""
    from orchestrator.spec.schema import json_schema

    emit_json(json_schema())
