"""Implement `haltsweep list`, which prints one line per sweep of a folder and of a database."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.commands.status import SweepState, state_of
from orchestrator.cli.display.console import emit_json, out, say
from orchestrator.cli.display.progress import duration
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Json, Runs, Storage
from orchestrator.errors import HaltsweepError, InputError, StoreError
from orchestrator.identity import SweepFolder
from search_spaces.wording import printable

if TYPE_CHECKING:
    from orchestrator.ledger.summary import Summary

QUESTION_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """Summary of one sweep, as far as it is readable."""

    name: str
    state: SweepState
    arms: int | None = None
    ended: int | None = None
    """Number of trials with a final outcome."""
    planned: int | None = None
    """Number of planned trials; None if the folder with the plan is on another machine."""
    failed: int | None = None
    heard_at: float | None = None
    """Unix time in seconds of the newest event or heartbeat."""
    question: str = ""
    folder: str | None = None
    why: str = ""
    """Reason why the sweep is not readable."""


def list_sweeps(runs: Runs = None, storage: Storage = None, as_json: Json = False) -> None:
    """List every sweep: state, trials, failures, when it was last heard of."""
    root = runs_root(runs)
    rows = list(found_in(root, storage))
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    if not rows:
        say(f"no sweeps in {root}; start one with `haltsweep launch SPEC`")
        return
    _print(rows)


def found_in(root: Path, storage: str | None) -> Iterator[Row]:
    """Yield the sweeps in folders by name, then sweeps in the database `storage` without a folder."""
    from orchestrator.ledger.summary import summaries

    known = {summary.name: summary for summary in summaries(storage)} if storage is not None else {}
    here = set()
    for folder in folders(root):
        here.add(folder.name)
        yield _read(folder, known)
    for name in sorted(known.keys() - here):
        yield _elsewhere(known[name])


def folders(root: Path) -> list[SweepFolder]:
    """Return the folders in `root` that may contain a sweep, except hidden ones."""
    try:
        names = sorted(root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise StoreError(
            f"the folder of the sweeps must be readable, got {error}; correct that or choose another --runs"
        ) from error
    return [SweepFolder(path) for path in names if not path.name.startswith(".") and _may_be_sweep(path)]


def _may_be_sweep(path: Path) -> bool:
    try:
        if not path.is_dir():
            return False
        found = SweepFolder(path)
        return any(file.exists() for file in (found.plan, found.ledger, found.spec))
    except OSError:  # a folder that this user may not read
        return True


def _read(folder: SweepFolder, known: "dict[str, Summary]") -> Row:
    try:
        return _sound(folder, known)
    except Exception as error:  # a damaged sweep must not hide the others
        why = str(error).partition("\n")[0] if isinstance(error, HaltsweepError) else repr(error)
        foreign = (PermissionError, InputError)  # the folder, or the ledger's server, is another user's
        forbidden = isinstance(error, foreign) or isinstance(error.__cause__, PermissionError)
        state = SweepState.FOREIGN if forbidden else SweepState.DAMAGED
        return Row(folder.name, state, folder=str(folder.root), why=why)


def _sound(folder: SweepFolder, known: "dict[str, Summary]") -> Row:
    from orchestrator.cli.reading import readable
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.sqlite_files import why_no_database
    from orchestrator.ledger.summary import summaries
    from orchestrator.plan.serialise import read_plan

    plan = read_plan(folder)
    if plan.name != folder.name:
        raise StoreError(f"the folder must bear the name of its sweep, which is {plan.name!r}")
    setup = read_setup(folder)
    gone = "" if setup.storage is not None else why_no_database(folder.ledger)
    summary = known.get(plan.name)
    if summary is None and not gone:
        with readable(setup.ledger_url(folder), folder) as url:
            (summary,) = summaries(url, plan.name)
    if summary is None and folder.has_traces:
        raise StoreError(f"the ledger {folder.ledger} must be there, for the sweep has begun, and {gone}")
    planned = len(plan.trials)
    ended, failed = (summary.num_ended, summary.num_failed) if summary else (0, 0)
    held = summary is not None and summary.held
    return Row(
        name=plan.name,
        state=state_of(held=held, planned=planned, ended=ended, failed=failed),
        arms=len(plan.arms),
        ended=ended,
        planned=planned,
        failed=failed,
        heard_at=summary.heard_at if summary else None,
        question=plan.question,
        folder=str(folder.root),
    )


def _elsewhere(summary: "Summary") -> Row:
    """Return the row of a sweep whose folder is on another machine, so that its plan is unknown."""
    ended, failed = summary.num_ended, summary.num_failed
    planned = ended if summary.done else ended + 1
    state = state_of(held=summary.held, planned=planned, ended=ended, failed=failed)
    return Row(
        summary.name,
        state,
        ended=ended,
        planned=ended if summary.done else None,
        failed=failed,
        heard_at=summary.heard_at,
        why="its folder is not here",
    )


def _print(rows: list[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table("sweep", "state")
    for header in ("arms", "done", "failed", "last heard"):
        made.add_column(header, justify="right")
    made.add_column("question")
    now = time.time()
    for row in rows:
        done = "-" if row.ended is None else f"{row.ended}/{'?' if row.planned is None else row.planned}"
        heard = "-" if row.heard_at is None else f"{duration(max(0.0, now - row.heard_at))} ago"
        cells = (
            printable(row.name),
            row.state.value,
            "-" if row.arms is None else str(row.arms),
            done,
            "-" if row.failed is None else str(row.failed),
            heard,
            _short(row.why or row.question),
        )
        made.add_row(*map(Text, cells))
    out().print(made)
    for row in rows:
        if row.state in (SweepState.DAMAGED, SweepState.FOREIGN):
            say(f"{row.state}: {printable(row.name)}: {printable(row.why)}")


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= QUESTION_CHARACTERS else f"{line[: QUESTION_CHARACTERS - 3]}..."
