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

from orchestrator.cli.display.console import emit_json, out, say
from orchestrator.cli.display.fencing import silence_of
from orchestrator.cli.display.progress import line, may_end_early, shortened, tables
from orchestrator.cli.display.running import time_left
from orchestrator.cli.display.tracked import tracking_of
from orchestrator.cli.locations import command, more_budget, runs_root, stopped_by_error
from orchestrator.cli.options import Json, Runs, Storage, SweepName
from orchestrator.conductor.messages import Progress
from orchestrator.conductor.overview import EndedTotals, Overview
from orchestrator.errors import InputError
from orchestrator.garbage import garbage_collection_off
from orchestrator.identity import SweepFolder
from orchestrator.plan.display.format import setting_words
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import Record, numbered
from search_spaces.wording import amount, visible

MOST_REASONS = 3


class SweepState(StrEnum):
    """State of a sweep in one word, the only definition of these words."""

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


def state_of(*, held: bool, planned: int, ended: int, failed: int) -> SweepState:
    """Return the state of a readable sweep."""
    if held:
        return SweepState.RUNNING
    if ended < planned:
        return SweepState.UNFINISHED
    return SweepState.FAILED if ended and failed == ended else SweepState.FINISHED


def status(
    name: SweepName,
    runs: Runs = None,
    storage: Storage = None,
    trials: Annotated[bool, typer.Option("--trials", help="List every trial.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it until nobody runs it any more; Ctrl-C ends that alone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how far a sweep is: by arm, what runs, failures and their reasons."""
    if watch and as_json:
        raise InputError("--watch is for people and --json for scripts, got both; give one of them")
    if watch:
        from orchestrator.cli.display.watching import watch_sweep

        watch_sweep(name, runs_root(runs), storage)
    with garbage_collection_off():
        _show(name, runs, storage, trials=trials, as_json=as_json)


def _show(name: str, runs: Path | None, storage: str | None, *, trials: bool, as_json: bool) -> None:
    from orchestrator.cli.reading import opened

    every_trial = as_json or trials
    with opened(name, runs_root(runs), storage, outline=not every_trial) as sweep:
        records, held = sweep.newest_records() if every_trial else [], sweep.ledger.held()
        found = Overview.of(sweep.plan, sweep.planned, records) if every_trial else sweep.overview()
        tracking = tracking_of(sweep)
        progress, outlook = found.progress(held=held), found.outlook(held=held, now=time.time())
        silence = silence_of(sweep.ledger)
        spent, failing = ("", "") if held else (sweep.spent(), sweep.failing())
    state = _state(progress, held=held)
    if as_json:
        emit_json(
            {
                "sweep": sweep.plan.name,
                "state": state,
                "spent": spent,
                "failing": failing,
                "arms": [asdict(each) | {"ended": each.ended} for each in progress],
                "running": [asdict(each) | {"rate": each.rate} for each in outlook.running],
                "tracking": asdict(tracking) if tracking else None,
                "trials": [_trial(record) for record in records],
            }
        )
        _exit_if_failed(state)
        return
    objective = counted_name(sweep.plan.search.objectives[0]) if sweep.plan.search else ""
    for part in tables(progress, objective, outlook):
        out().print(part)
    left = time_left(outlook, float(len(outlook.running)), shorter=may_end_early(sweep.plan))
    say(f"{sweep.plan.name}: {state}; {line(progress, left)}")
    for advice in _next_steps(sweep.folder, state, silence, spent, failing):
        say(advice)
    if tracking is not None:
        say(tracking.line(command("sync", sweep.folder), held=held))
    for reason, count in found.ended.skipped.items():
        say(f"ended early: {reason} ({amount(count, 'trial')} skipped)")
    for reason, count in Counter(found.ended.infeasible).most_common(MOST_REASONS):
        say(f"infeasible: {shortened(reason)} ({amount(count, 'trial')}, each with another in its place)")
    if state is SweepState.FINISHED:
        for verdict in _verdicts(sweep.folder, sum(each.ended + each.infeasible for each in progress)):
            say(verdict)
    _print_failures(found.ended, sum(each.failed for each in progress))
    if found.ended.traced:
        say(f"a whole traceback: {command('logs', sweep.folder, found.ended.traced)}")
    if trials:
        _print_trials(records)
    _exit_if_failed(state)


def _next_steps(folder: SweepFolder, state: SweepState, silence: str, spent: str, failing: str) -> list[str]:
    """Return lines about a silent holder and about the next command."""
    lines = [silence] if silence else []
    if failing:
        lines.append(stopped_by_error(failing, folder))
    elif spent:
        lines.append(more_budget(spent, folder))
    elif state is SweepState.UNFINISHED:
        lines.append(f"continue with: {command('resume', folder)}")
    return lines


def _verdicts(folder: SweepFolder, ended: int) -> list[str]:
    """Return warnings and verdicts of the report, if it covers all `ended` trials.

    An outdated report gives a hint to renew it. A missing report, or one without verdicts, gives no lines.
    """
    try:
        written = json.loads((folder.report / "report.json").read_bytes())
        made = [*written.get("verdicts", ()), *written.get("pooled", ())]
        verdicts = [visible(str(each["line"])) for each in made]
        notices = [visible(str(each)) for each in written.get("notices", ())] if verdicts else []
        outcomes = [counts for arm in written["tallies"] for counts in arm["outcomes"].values()]
        counted = sum(sum(counts.values()) - counts.get("open", 0) for counts in outcomes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []
    if verdicts and (written.get("left") or counted != ended):
        return [
            f"the report was written before the last trials ended: {command('report', folder)} does it again"
        ]
    return [*notices, *verdicts]


def _state(progress: Sequence[Progress], *, held: bool) -> SweepState:
    planned, ended = sum(each.planned for each in progress), sum(each.ended for each in progress)
    return state_of(held=held, planned=planned, ended=ended, failed=sum(each.failed for each in progress))


def _exit_if_failed(state: SweepState) -> None:
    if state is SweepState.FAILED:
        raise typer.Exit(1)


def _trial(record: Record) -> dict[str, object]:
    return {
        "trial_id": record.trial_id,
        "arm": record.arm,
        "phase": record.phase,
        "number": record.number,
        "repeat": record.repeat,
        "seed": record.seed,
        "outcome": record.outcome.value if record.outcome else None,
        "reason": record.reason,
        "attempts": record.attempts,
        "assignment": dict(record.assignment),
        "step": record.last.step if record.last else None,
        "metrics": dict(record.last.metrics) if record.last else {},
    }


def _print_failures(ended: EndedTotals, count: int) -> None:
    for each in ended.failures:
        say(f"failed: {each.place} ({each.trial_id}): {each.standing}: {shortened(each.reason)}")
    if count > len(ended.failures):
        say(f"... and {count - len(ended.failures)} more failures; all with --json")


def _print_trials(records: list[Record]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table("trial", "arm", "phase", "number", "seed", "outcome", "step", "assignment")
    for record in records:
        assignment = setting_words(record.assignment, 4)
        step = str(record.last.step) if record.last else "-"
        cells = (
            record.trial_id,
            record.arm,
            record.phase,
            numbered(record.repeat, record.number),
            str(record.seed),
            record.standing,
            step,
        )
        made.add_row(*map(Text, (*cells, assignment)))
    out().print(made)
