"""Implement `haltsweep logs`, which prints the output of a trial and why each of its attempts ended."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from orchestrator.cli.display.console import emit_json, print_line
from orchestrator.cli.display.progress import first_line
from orchestrator.cli.locations import command, runs_root
from orchestrator.cli.options import Json, Runs, Storage, SweepName
from orchestrator.errors import InputError
from orchestrator.identity import SweepFolder
from orchestrator.trials import PlannedTrial, Record
from search_spaces.wording import escape_to_line, hint

if TYPE_CHECKING:
    from orchestrator.cli.stored_sweep import StoredSweep

AnyTrial = TypeVar("AnyTrial", bound=PlannedTrial | Record)
MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One run of a trial by one worker, with its output."""

    number: int
    started_at: float
    ended_at: float | None = None
    outcome: str | None = None
    """Outcome; None while the attempt runs, or if worker and launcher died together."""
    reason: str = ""
    file: str = ""
    output: str | None = None
    """Output of the attempt with its traceback; None if no output is stored."""


def logs(
    name: SweepName,
    trial: Annotated[
        str | None,
        typer.Argument(
            help="Id of a trial, the first characters of an id, or ARM/PHASE/NUMBER.", metavar="TRIAL"
        ),
    ] = None,
    runs: Runs = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the whole output and traceback of a trial; without TRIAL, list the failed trials."""
    from orchestrator.cli.stored_sweep import open_stored_sweep

    with open_stored_sweep(name, runs_root(runs), storage) as sweep:
        if trial is None:
            _list_failed_trials(sweep, as_json=as_json)
            return
        # The plan does not list trials that replace infeasible ones.
        trials: dict[str, PlannedTrial | Record] = {entry.trial_id: entry for entry in sweep.records()}
        trials |= {entry.trial_id: entry for entry in sweep.plan.trials}
        planned = find_trial(trial, tuple(trials.values()))
        attempts = _attempts(sweep, planned.trial_id)
    if as_json:
        emit_json({**_identity_fields(planned), "attempts": [asdict(entry) for entry in attempts]})
        return
    _print(planned, attempts)


def find_trial(text: str, trials: Sequence[AnyTrial]) -> AnyTrial:
    """Return the trial whose id, unique beginning of the id, or `place` is `text`.

    Raises:
        InputError: No trial or several trials match; the message lists similar names.
    """
    by_name = {entry.place: entry for entry in trials}
    by_id = {entry.trial_id: entry for entry in trials}
    match = by_id.get(text) or by_name.get(text)
    if match is not None:
        return match
    matches = [entry for entry in trials if text and entry.trial_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(entry.trial_id for entry in matches[:MAX_LISTED])
        raise InputError(
            f"TRIAL {text!r}: {len(matches)} trial ids begin with it: {ids}. Give more characters."
        )
    names = [*by_name, *by_id] if "/" not in text else list(by_name)
    suggestion, list_hint = hint(text, names), f"`haltsweep status --trials` lists all {len(trials)}"
    if len(names) > MAX_LISTED:
        suggestion = suggestion.partition("Known:")[0].rstrip() or list_hint
    raise InputError(f"TRIAL must be the id of a trial or ARM/PHASE/NUMBER, got {text!r}. {suggestion}")


def _list_failed_trials(sweep: "StoredSweep", *, as_json: bool) -> None:
    failed = [
        record for record in sweep.records() if record.outcome is not None and record.outcome.is_failure
    ]
    if as_json:
        emit_json([_identity_fields(record) | _ending_fields(record) for record in failed])
        return
    for record in failed:
        reason = escape_to_line(first_line(record.reason))
        print_line(f"{record.trial_id}  {record.place}  {record.outcome}: {reason}")
    if failed:
        example = command("logs", sweep.folder, failed[0].trial_id)
        print_line(f"show the whole output of one: {example}")
    else:
        example = command("logs", sweep.folder, shlex.quote(sweep.plan.trials[0].place))
        print_line(f"no trial has failed; show the output of any: {example}")


def _ending_fields(record: Record) -> dict[str, object]:
    return {"outcome": str(record.outcome), "reason": record.reason, "attempts": record.attempts}


def _identity_fields(trial: PlannedTrial | Record) -> dict[str, object]:
    names = ("trial_id", "arm", "phase", "number", "repeat", "seed")
    return {name: getattr(trial, name) for name in names}


def _attempts(sweep: "StoredSweep", trial_id: str) -> list[AttemptLog]:
    """Return the attempts in the ledger, with their stored output."""
    from orchestrator.isolation.child_log import read_log
    from orchestrator.ledger.events import EventKind

    attempts: list[AttemptLog] = []
    for event in sweep.ledger.events():
        if event.trial_id != trial_id:
            continue
        if event.kind is EventKind.STARTED:
            number = event.payload["token"]
            file = SweepFolder(sweep.folder.root).log(trial_id, number)
            attempts.append(AttemptLog(number, event.at, file=str(file), output=read_log(file)))
        elif event.kind is EventKind.ENDED and attempts:
            kind, reason = event.payload["kind"], event.payload["reason"]
            attempts[-1] = replace(attempts[-1], ended_at=event.at, outcome=kind, reason=reason)
    return attempts


def _print(trial: PlannedTrial | Record, attempts: Sequence[AttemptLog]) -> None:
    print_line(f"{trial.trial_id}  {trial.place}  seed {trial.seed}")
    if not attempts:
        print_line("not started yet")
    for attempt in attempts:
        ended_at = attempt.ended_at
        end = "has not ended" if ended_at is None else f"{attempt.outcome} {_format_time(ended_at)}"
        print_line(f"--- attempt {attempt.number}, started {_format_time(attempt.started_at)}, {end}")
        if attempt.output is None:
            for line in attempt.reason.splitlines():
                print_line(escape_to_line(line))
            print_line(f"(its output is not stored in {Path(attempt.file).parent})")
            continue
        first = escape_to_line(attempt.reason.partition("\n")[0])
        if first:
            print_line(first)
        print_line(attempt.output.rstrip("\n"))


def _format_time(time: float) -> str:
    return datetime.fromtimestamp(time).astimezone().isoformat(" ", "seconds")
