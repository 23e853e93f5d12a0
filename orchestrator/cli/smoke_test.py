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
    by_arm: dict[str, FirstReport] = {}
    reports = first_reports(plan, data_dir)
    arms = {arm.name: arm for arm in plan.arms}
    for _ in arms:
        with redirect_stdout(sys.stderr):  # output of training code goes to standard error
            first_report = next(reports)
        arm, by_arm[first_report.arm] = arms[first_report.arm], first_report
        failed = failed or bool(first_report.error)
        result = first_report.error or "; ".join(["ok", *_remarks(arm, by_arm)])
        (complain if first_report.error else say)(f"{plan.name}: smoke test of {arm.name}: {result}")
    if failed:
        complain(f"{plan.name}: nothing was written; correct this first")
        raise typer.Exit(InputError.exit_code)


def _remarks(arm: "Arm", by_arm: "Mapping[str, FirstReport]") -> list[str]:
    """Return warnings about unseeded randomness and about settings that the code seems to ignore."""
    report = by_arm[arm.name]
    if (
        report.metrics_again
        and (differing := _differing_names(report.metrics, report.metrics_again)) == report.metrics.keys()
    ):
        names = ", ".join(sorted(differing))
        message = f"a second run with the same seed reported other values of {names}"
        return [
            f"{message}: seed all random generators from trial.seed, or differences between arms are noise"
        ]
    reference = by_arm.get(arm.reference)
    first = next(iter(by_arm.values()))
    steady = first.metrics.keys() - _differing_names(first.metrics, first.metrics_again)
    if reference is None or not steady or not arm.changes or arm.control:
        return []
    shared = steady & report.metrics.keys() & reference.metrics.keys()
    if not shared or shared & _differing_names(report.metrics, reference.metrics):
        return []
    names, fields = ", ".join(sorted(shared)), ", ".join(change.path for change in arm.changes)
    message = f"its first report is that of {arm.reference} (equal: {names})"
    return [f"{message}: perhaps the code does not read {fields}"]


def _differing_names(metrics: "Mapping[str, Any]", compared: "Mapping[str, Any]") -> set[str]:
    """Return the names of values in `metrics` that are missing or different in `compared`."""
    return {name for name, value in metrics.items() if repr(compared.get(name)) != repr(value)}
