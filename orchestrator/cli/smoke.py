"""Run every arm to its first report before files are written, for `launch --smoke` and `check --run`."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.display.console import complain, say
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from orchestrator.execution.trial.rehearsal import FirstReport
    from orchestrator.plan.types import Arm, Plan


def run_smoke_test(plan: "Plan", data_dir: Path) -> None:
    """Run every arm of `plan` to its first report, and print the result of each.

    Raises:
        typer.Exit: An arm failed; the exit code is that of bad input.
    """
    from orchestrator.execution.trial.rehearsal import first_reports

    failed = False
    seen: dict[str, FirstReport] = {}
    reports = first_reports(plan, data_dir)
    arms = {arm.name: arm for arm in plan.arms}
    for _ in arms:
        with redirect_stdout(sys.stderr):  # output of training code goes to standard error
            found = next(reports)
        arm, seen[found.arm] = arms[found.arm], found
        failed = failed or bool(found.error)
        result = found.error or "; ".join(["ok", *_remarks(arm, seen)])
        (complain if found.error else say)(f"{plan.name}: smoke test of {arm.name}: {result}")
    if failed:
        complain(f"{plan.name}: nothing was written; correct this first")
        raise typer.Exit(InputError.exit_code)


def _remarks(arm: "Arm", seen: "Mapping[str, FirstReport]") -> list[str]:
    """Return warnings about unseeded randomness and about settings that the code seems to ignore."""
    own = seen[arm.name]
    if own.metrics_again and (moved := _unlike(own.metrics, own.metrics_again)) == own.metrics.keys():
        names = ", ".join(sorted(moved))
        message = f"a second run with the same seed reported other values of {names}"
        return [
            f"{message}: seed all random generators from trial.seed, or differences between arms are noise"
        ]
    reference = seen.get(arm.reference)
    first = next(iter(seen.values()))
    steady = first.metrics.keys() - _unlike(first.metrics, first.metrics_again)
    if reference is None or not steady or not arm.changes or arm.control:
        return []
    shared = steady & own.metrics.keys() & reference.metrics.keys()
    if not shared or shared & _unlike(own.metrics, reference.metrics):
        return []
    names, fields = ", ".join(sorted(shared)), ", ".join(change.path for change in arm.changes)
    message = f"its first report is that of {arm.reference} (equal: {names})"
    return [f"{message}: perhaps the code does not read {fields}"]


def _unlike(one: "Mapping[str, Any]", other: "Mapping[str, Any]") -> set[str]:
    """Return the names of values in `one` that are missing or different in `other`."""
    return {name for name, value in one.items() if repr(other.get(name)) != repr(value)}
