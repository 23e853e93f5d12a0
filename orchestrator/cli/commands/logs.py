"""Implement `haltsweep logs`, which prints the output of a trial and why each of its attempts ended."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from orchestrator.cli.display.console import emit_json, say
from orchestrator.cli.display.progress import shortened
from orchestrator.cli.locations import command, runs_root
from orchestrator.cli.options import Json, Runs, Storage, SweepName
from orchestrator.errors import InputError
from orchestrator.identity import SweepFolder
from orchestrator.trials import PlannedTrial, Record
from search_spaces.wording import hint, printable

if TYPE_CHECKING:
    from orchestrator.cli.reading import Opened

AnyTrial = TypeVar("AnyTrial", bound=PlannedTrial | Record)
LISTED = 20


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
        typer.Argument(help="Id of a trial, its beginning, or ARM/PHASE/NUMBER.", metavar="TRIAL"),
    ] = None,
    runs: Runs = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the whole output and traceback of a trial; without TRIAL, list those that failed."""
    from orchestrator.cli.reading import opened

    with opened(name, runs_root(runs), storage) as sweep:
        if trial is None:
            _list(sweep, as_json=as_json)
            return
        # The plan does not list trials that replace infeasible ones.
        known: dict[str, PlannedTrial | Record] = {each.trial_id: each for each in sweep.records()}
        known |= {each.trial_id: each for each in sweep.plan.trials}
        planned = find_trial(trial, tuple(known.values()))
        attempts = _attempts(sweep, planned.trial_id)
    if as_json:
        emit_json({**_identity(planned), "attempts": [asdict(each) for each in attempts]})
        return
    _print(planned, attempts)


def find_trial(text: str, trials: Sequence[AnyTrial]) -> AnyTrial:
    """Return the trial with that id, unique prefix of an id, or `place`.

    Raises:
        InputError: No trial or several trials match; the message lists similar names.
    """
    by_name = {each.place: each for each in trials}
    by_id = {each.trial_id: each for each in trials}
    exact = by_id.get(text) or by_name.get(text)
    if exact is not None:
        return exact
    found = [each for each in trials if text and each.trial_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(each.trial_id for each in found[:LISTED])
        raise InputError(f"a trial must be named without doubt, and {text!r} begins {len(found)} ids: {ids}")
    known = [*by_name, *by_id] if "/" not in text else list(by_name)
    near = hint(text, known)
    if len(known) > LISTED:
        near = near.partition("Known:")[0].rstrip() or f"`haltsweep status --trials` lists all {len(trials)}"
    raise InputError(f"no trial {text!r} in the plan; they are named by id or ARM/PHASE/NUMBER. {near}")


def _list(sweep: "Opened", *, as_json: bool) -> None:
    failed = [each for each in sweep.records() if each.outcome is not None and each.outcome.failed]
    if as_json:
        emit_json(
            [
                {
                    **_identity(each),
                    "outcome": str(each.outcome),
                    "reason": each.reason,
                    "attempts": each.attempts,
                }
                for each in failed
            ]
        )
        return
    for each in failed:
        say(f"{each.trial_id}  {each.place}  {each.outcome}: {printable(shortened(each.reason))}")
    if failed:
        say(f"all that one of them printed: {command('logs', sweep.folder, failed[0].trial_id)}")
    else:
        any_trial = shlex.quote(sweep.plan.trials[0].place)
        say(f"no trial has failed; all that any printed: {command('logs', sweep.folder, any_trial)}")


def _end(record: Record) -> dict[str, object]:
    return {"outcome": str(record.outcome), "reason": record.reason, "attempts": record.attempts}


def _identity(trial: PlannedTrial | Record) -> dict[str, object]:
    return {
        "trial_id": trial.trial_id,
        "arm": trial.arm,
        "phase": trial.phase,
        "number": trial.number,
        "repeat": trial.repeat,
        "seed": trial.seed,
    }


def _attempts(sweep: "Opened", trial_id: str) -> list[AttemptLog]:
    """Return the attempts in the ledger, with their stored output."""
    from orchestrator.isolation.child_log import read_log
    from orchestrator.ledger.events import EventKind

    found: list[AttemptLog] = []
    for event in sweep.ledger.events():
        if event.trial_id != trial_id:
            continue
        if event.kind is EventKind.STARTED:
            number = event.payload["token"]
            file = SweepFolder(sweep.folder.root).log(trial_id, number)
            found.append(AttemptLog(number, event.at, file=str(file), output=read_log(file)))
        elif event.kind is EventKind.ENDED and found:
            kind, reason = event.payload["kind"], event.payload["reason"]
            found[-1] = replace(found[-1], ended_at=event.at, outcome=kind, reason=reason)
    return found


def _print(trial: PlannedTrial | Record, attempts: Sequence[AttemptLog]) -> None:
    say(f"{trial.trial_id}  {trial.place}  seed {trial.seed}")
    if not attempts:
        say("it has not been started")
    for each in attempts:
        end = "has not ended" if each.ended_at is None else f"{each.outcome} {_moment(each.ended_at)}"
        say(f"--- attempt {each.number}, started {_moment(each.started_at)}, {end}")
        if each.output is None:
            for line in each.reason.splitlines():
                say(printable(line))
            say(f"(nothing that it printed is kept in {Path(each.file).parent})")
            continue
        first = printable(each.reason.partition("\n")[0])
        if first:
            say(first)
        say(each.output.rstrip("\n"))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
