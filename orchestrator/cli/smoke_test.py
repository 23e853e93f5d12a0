"""Run every arm to its first report before files are written, for `launch --smoke` and `check --run`."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.display.console import print_error, print_line
from orchestrator.errors import InputError
from search_spaces.wording import join_words
from trainables.custom.source_files import script_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.execution.trial.rehearsal import FirstReport
    from orchestrator.plan.types import Arm, Plan


def run_smoke_test(plan: "Plan", data_dir: Path) -> None:
    """Run every arm of `plan` to its first report, and print the result of each; equal errors once.

    Raises:
        typer.Exit: An arm failed; the exit code is that of bad input.
    """
    from orchestrator.execution.trial.rehearsal import first_reports

    failures: dict[str, list[str]] = {}
    metrics: dict[str, None] = {}
    reports = first_reports(plan, data_dir)
    arms = {arm.name: arm for arm in plan.arms}
    for _ in arms:
        with redirect_stdout(sys.stderr):  # output of training code goes to standard error
            report = next(reports)
        metrics |= dict.fromkeys(report.metrics)
        if report.error:
            failures.setdefault(report.error, []).append(report.arm)
        else:
            result = "; ".join(["ok", *_remarks(plan, arms[report.arm], report)])
            print_line(f"{plan.name}: smoke test of {report.arm}: {result}")
    for error, names in failures.items():
        print_error(f"{plan.name}: smoke test of {join_words(names)}: {error}")
    if not failures and (error := _confirm_trial_error(plan, data_dir)):
        failures[error] = []
        print_error(f"{plan.name}: {error}")
    if warning := _test_data_warning(plan, metrics):
        print_error(f"{plan.name}: {warning}")
    if failures:
        print_error(f"{plan.name}: nothing was written; correct this first")
        raise typer.Exit(InputError.exit_code)


def _confirm_trial_error(plan: "Plan", data_dir: Path) -> str:
    """Rehearse a confirm trial and return its error; empty if there is none.

    If the trial was stopped before it reported the primary outcomes, print that they were not checked.
    """
    from orchestrator.execution.trial.rehearsal import CONFIRM_LIMIT_S, rehearse_confirm_trial

    with redirect_stdout(sys.stderr):
        trial = rehearse_confirm_trial(plan, data_dir)
    if trial is None:
        return ""
    subject = f"smoke test of a confirm trial of {trial.arm}"
    if trial.error:
        return f"{subject}: {trial.error}"
    if not trial.missing:
        print_line(f"{plan.name}: {subject}: ok")
        return ""
    names = join_words(trial.missing)
    if trial.has_ended:
        return f"{subject}: must report the primary outcome {names}, got a trial without it"
    print_error(
        f"{plan.name}: {subject}: warning: {names} was not reported within {CONFIRM_LIMIT_S:.0f} seconds, so "
        "it is unknown whether the code reports it"
    )
    return ""


def _remarks(plan: "Plan", arm: "Arm", report: "FirstReport") -> "Iterator[str]":
    """Yield warnings about missing objectives, unseeded random numbers and settings without effect."""
    from orchestrator.execution.trial.rehearsal import is_reported

    objectives = plan.search.objectives if plan.search is not None and plan.trainable is not None else ()
    if missing := [each.metric for each in objectives if not is_reported(each.metric, report.metrics)]:
        yield (
            f"its first report lacks {join_words(missing)}, which the last report of every search trial must "
            "contain"
        )
    if report.unsteady_metrics and {*report.unsteady_metrics} == report.metrics.keys():
        yield (
            "a second run with the same seed reported other values of "
            f"{', '.join(report.unsteady_metrics)}: seed all random generators from trial.seed, or "
            "differences between arms are noise"
        )
    if report.unread_fields:
        yield (
            f"the code did not read {join_words(report.unread_fields)} before its first report: "
            "without effect unless it is read later"
        )
    if report.equal_metrics:
        count = report.num_equal_reports
        reports = "report equals that" if count == 1 else f"first {count} reports equal those"
        later_text = "" if count == 1 else ", or the effect may come later"
        fields = ", ".join(change.path for change in arm.changes)
        yield (
            f"its {reports} of {arm.reference} in {', '.join(report.equal_metrics)}: the code may ignore "
            f"{fields}{later_text}"
        )


def _test_data_warning(plan: "Plan", metrics: "Iterable[str]") -> str:
    """Return a warning if search trials report metrics of test data; otherwise an empty string."""
    from orchestrator.plan.answer import metric_splits

    if plan.search is None:
        return ""
    splits = metric_splits(plan.search, plan.confirm, plan.answer)
    test_metrics = sorted(filter(splits.is_test, metrics))
    if not test_metrics:
        return ""
    is_script = plan.trainable is not None and script_command(plan.trainable) is not None
    trial = "haltsweep.current_trial()" if is_script else "trial"
    return (
        f"warning: search trials should not measure test data, got reports of {', '.join(test_metrics)}. "
        f"Report these metrics only if {trial}.splits is not empty, as in confirm trials"
    )
