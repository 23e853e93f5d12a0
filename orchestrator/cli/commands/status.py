"""Implement `haltsweep status`, which prints the progress, state and failures of a sweep."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.display.console import emit_json, out, print_line
from orchestrator.cli.display.lease_messages import describe_silent_holder
from orchestrator.cli.display.progress import first_line, may_end_early, progress_line, progress_tables
from orchestrator.cli.display.running_trials import time_left_text
from orchestrator.cli.display.tracking_status import sweep_tracking_status
from orchestrator.cli.locations import budget_advice, command, error_advice, runs_root
from orchestrator.cli.options import Json, Runs, Storage, SweepName
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.overview import EndedTrialTotals, Overview
from orchestrator.errors import InputError
from orchestrator.garbage import garbage_collection_off
from orchestrator.identity import SweepFolder
from orchestrator.plan.display.format import setting_words
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import Record
from search_spaces.wording import amount, escape_unprintable

MAX_REASONS = 3


class SweepState(StrEnum):
    """State of a sweep in one word, as `haltsweep status` and `list` print it."""

    RUNNING = "running"
    UNFINISHED = "unfinished"
    """No process runs the sweep, and trials are left: `haltsweep resume` continues."""
    FINISHED = "finished"
    FAILED = "failed"
    """Every trial has ended, and every one of them failed."""
    DAMAGED = "damaged"
    """The sweep is not readable."""
    FOREIGN = "not allowed"
    """This user may not read the sweep."""


def sweep_state(*, is_locked: bool, num_planned: int, num_ended: int, num_failed: int) -> SweepState:
    """Return the state of a readable sweep."""
    if is_locked:
        return SweepState.RUNNING
    if num_ended < num_planned:
        return SweepState.UNFINISHED
    return SweepState.FAILED if num_ended and num_failed == num_ended else SweepState.FINISHED


def status(
    name: SweepName,
    runs: Runs = None,
    storage: Storage = None,
    trials: Annotated[bool, typer.Option("--trials", help="List every trial.")] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Update the display until the sweep stops; Ctrl-C ends only the display."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the progress of a sweep: trials by arm, running trials, failures and their reasons."""
    if watch and as_json:
        raise InputError("--watch and --json exclude each other, got both. Give one of them.")
    if watch:
        from orchestrator.cli.display.watch_display import watch_sweep

        watch_sweep(name, runs_root(runs), storage)
    with garbage_collection_off():
        _print_status(name, runs, storage, trials=trials, as_json=as_json)


def _print_status(name: str, runs: Path | None, storage: str | None, *, trials: bool, as_json: bool) -> None:
    from orchestrator.cli.stored_sweep import open_stored_sweep

    includes_trials = as_json or trials
    with open_stored_sweep(name, runs_root(runs), storage, outline=not includes_trials) as sweep:
        records, is_locked = sweep.newest_records() if includes_trials else [], sweep.ledger.is_held()
        overview = (
            Overview.from_records(sweep.plan, sweep.planned, records) if includes_trials else sweep.overview()
        )
        tracking = sweep_tracking_status(sweep)
        progress = overview.progress(is_locked=is_locked)
        outlook = overview.outlook(is_locked=is_locked, now=time.time())
        silence = describe_silent_holder(sweep.ledger)
        spent, failing = ("", "") if is_locked else (sweep.exhausted_budget(), sweep.stopping_error())
    state = _progress_state(progress, is_locked=is_locked)
    if as_json:
        emit_json(
            {
                "sweep": sweep.plan.name,
                "state": state,
                "spent": spent,
                "failing": failing,
                "arms": [asdict(arm) | {"ended": arm.ended} for arm in progress],
                "running": [asdict(arm) | {"rate": arm.rate} for arm in outlook.running],
                "tracking": asdict(tracking) if tracking else None,
                "trials": [_trial_fields(record) for record in records],
            }
        )
    else:
        objective = counted_name(sweep.plan.search.objectives[0]) if sweep.plan.search else ""
        for part in progress_tables(progress, objective, outlook):
            out().print(part)
        remaining_time = time_left_text(
            outlook, float(len(outlook.running)), may_end_early=may_end_early(sweep.plan)
        )
        print_line(f"{sweep.plan.name}: {state}; {progress_line(progress, remaining_time)}")
        for advice in _next_steps(sweep.folder, state, silence, spent, failing):
            print_line(advice)
        if tracking is not None:
            print_line(tracking.line(command("sync", sweep.folder), is_locked=is_locked))
        _print_endings(sweep.folder, overview.ended, progress, state)
        if trials:
            _print_trials(records)
    if state is SweepState.FAILED:
        raise typer.Exit(1)


def _print_endings(
    folder: SweepFolder, totals: EndedTrialTotals, progress: Sequence[Progress], state: SweepState
) -> None:
    """Print how trials ended, and the verdicts of a finished sweep."""
    for reason, count in totals.skipped.items():
        print_line(f"ended early: {reason} ({amount(count, 'trial')} skipped)")
    for reason, count in Counter(totals.infeasible).most_common(MAX_REASONS):
        print_line(f"infeasible: {first_line(reason)} ({amount(count, 'trial')}, each replaced by another)")
    if state is SweepState.FINISHED:
        for verdict in _verdict_lines(folder, sum(arm.ended + arm.infeasible for arm in progress)):
            print_line(verdict)
    _print_failures(totals, sum(arm.failed for arm in progress))
    if totals.traced:
        print_line(f"show the whole traceback: {command('logs', folder, totals.traced)}")


def _next_steps(
    folder: SweepFolder, state: SweepState, silence: str, budget_reason: str, failing: str
) -> list[str]:
    """Return lines about a silent lease holder, and about the next command to run."""
    lines = [silence] if silence else []
    if failing:
        lines.append(error_advice(failing, folder))
    elif budget_reason:
        lines.append(budget_advice(budget_reason, folder))
    elif state is SweepState.UNFINISHED:
        lines.append(f"continue with: {command('resume', folder)}")
    return lines


def _verdict_lines(folder: SweepFolder, num_finished: int) -> list[str]:
    """Return warnings and verdicts of the report, if it covers all `num_finished` trials.

    For an outdated report, the only line is a hint to update it. A missing report, or one without verdicts,
    gives no lines.
    """
    try:
        content = json.loads((folder.report / "report.json").read_bytes())
        rows = [*content.get("verdicts", ()), *content.get("pooled", ())]
        verdicts = [escape_unprintable(str(row["line"])) for row in rows]
        notices = [escape_unprintable(str(row)) for row in content.get("notices", ())] if verdicts else []
        outcomes = [counts for arm in content["tallies"] for counts in arm["outcomes"].values()]
        num_ended = sum(sum(counts.values()) - counts.get("open", 0) for counts in outcomes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []
    if verdicts and (content.get("left") or num_ended != num_finished):
        return [f"the report is older than the last trials; write it again: {command('report', folder)}"]
    return [*notices, *verdicts]


def _progress_state(progress: Sequence[Progress], *, is_locked: bool) -> SweepState:
    planned, num_ended = sum(arm.planned for arm in progress), sum(arm.ended for arm in progress)
    return sweep_state(
        is_locked=is_locked,
        num_planned=planned,
        num_ended=num_ended,
        num_failed=sum(arm.failed for arm in progress),
    )


def _trial_fields(record: Record) -> dict[str, object]:
    names = ("trial_id", "arm", "phase", "number", "repeat", "seed", "reason", "attempts")
    return {name: getattr(record, name) for name in names} | {
        "outcome": record.outcome.value if record.outcome else None,
        "assignment": dict(record.assignment),
        "step": record.last.step if record.last else None,
        "metrics": dict(record.last.metrics) if record.last else {},
    }


def _print_failures(totals: EndedTrialTotals, count: int) -> None:
    for failure in totals.failures:
        print_line(
            f"failed: {failure.place} ({failure.trial_id}): {failure.standing}: {first_line(failure.reason)}"
        )
    if count > len(totals.failures):
        print_line(f"... and {count - len(totals.failures)} more failures; all with --json")


def _print_trials(records: list[Record]) -> None:
    from rich.table import Table
    from rich.text import Text

    has_repeats = any(record.repeat for record in records)
    title = "repeat.number" if has_repeats else "number"
    table = Table("trial", "arm", "phase", title, "seed", "outcome", "step", "assignment")
    for record in records:
        number = f"{record.repeat}.{record.number}" if has_repeats else str(record.number)
        step = str(record.last.step) if record.last else "-"
        trial = (record.trial_id, record.arm, record.phase, number, str(record.seed), record.standing, step)
        table.add_row(*map(Text, (*trial, setting_words(record.assignment, 4))))
    out().print(table)
