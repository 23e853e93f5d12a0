"""Implement `haltsweep list`, which prints one line per sweep of a folder and of a database."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.commands.status import SweepState, sweep_state
from orchestrator.cli.display.console import emit_json, out, print_line
from orchestrator.cli.display.progress import short_duration
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Json, Runs, Storage
from orchestrator.errors import HaltsweepError, InputError, StoreError
from orchestrator.identity import SweepFolder
from search_spaces.wording import escape_to_line

if TYPE_CHECKING:
    from orchestrator.ledger.summary import Summary

MAX_QUESTION_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Row:
    """Summary of one sweep, with the values that could be read."""

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
    """List all sweeps with their state, trials, failures and the time of the last event."""
    root = runs_root(runs)
    rows = list(list_rows(root, storage))
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    if not rows:
        print_line(f"no sweeps in {root}; `haltsweep launch SPEC` starts one")
        return
    _print_table(rows)


def list_rows(root: Path, storage: str | None) -> Iterator[Row]:
    """Yield all sweeps in folders, sorted by name, then sweeps that only the database `storage` contains."""
    from orchestrator.ledger.summary import read_summaries

    by_name = {summary.name: summary for summary in read_summaries(storage)} if storage is not None else {}
    local_names = set()
    for folder in sweep_folders(root):
        local_names.add(folder.name)
        yield _read_row(folder, by_name)
    for name in sorted(by_name.keys() - local_names):
        yield _remote_row(by_name[name])


def sweep_folders(root: Path) -> list[SweepFolder]:
    """Return the folders in `root` that may contain a sweep, except hidden ones."""
    try:
        names = sorted(root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise StoreError(
            f"--runs: the folder of sweeps cannot be read: {error}. Make it readable, or choose another one."
        ) from error
    return [SweepFolder(path) for path in names if not path.name.startswith(".") and _may_be_sweep(path)]


def _may_be_sweep(path: Path) -> bool:
    try:
        if not path.is_dir():
            return False
        folder = SweepFolder(path)
        return any(file.exists() for file in (folder.plan, folder.ledger, folder.spec))
    except OSError:  # a folder that this user may not read
        return True


def _read_row(folder: SweepFolder, by_name: "dict[str, Summary]") -> Row:
    try:
        return _readable_row(folder, by_name)
    except Exception as error:  # a damaged sweep must not hide the others
        reason = str(error).partition("\n")[0] if isinstance(error, HaltsweepError) else repr(error)
        # An `InputError` means that the ledger's server is another user's.
        is_refused = isinstance(error, PermissionError | InputError)
        is_forbidden = is_refused or isinstance(error.__cause__, PermissionError)
        state = SweepState.FOREIGN if is_forbidden else SweepState.DAMAGED
        return Row(folder.name, state, folder=str(folder.root), why=reason)


def _readable_row(folder: SweepFolder, by_name: "dict[str, Summary]") -> Row:
    from orchestrator.cli.stored_sweep import readable_url
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.files.sqlite_files import why_no_database
    from orchestrator.ledger.summary import read_summaries
    from orchestrator.plan.serialise import read_plan

    plan = read_plan(folder)
    if plan.name != folder.name:
        raise StoreError(f"the folder must have the name of its sweep, {plan.name!r}; rename the folder")
    setup = read_setup(folder)
    is_missing = setup.storage is None and bool(why_no_database(folder.ledger))
    summary = by_name.get(plan.name)
    if summary is None and not is_missing:
        with readable_url(setup.ledger_url(folder), folder) as url:
            (summary,) = read_summaries(url, plan.name)
    if summary is None and folder.has_traces:
        raise StoreError(f"the sweep has begun, but its ledger {folder.ledger} is missing or empty")
    return Row(
        name=plan.name,
        state=_state_of(summary, len(plan.trials)),
        arms=len(plan.arms),
        ended=summary.num_ended if summary else 0,
        planned=len(plan.trials),
        failed=summary.num_failed if summary else 0,
        heard_at=summary.last_activity_at if summary else None,
        question=plan.question,
        folder=str(folder.root),
    )


def _state_of(summary: "Summary | None", num_planned: int) -> SweepState:
    if summary is None:
        return sweep_state(is_locked=False, num_planned=num_planned, num_ended=0, num_failed=0)
    return sweep_state(
        is_locked=summary.is_held,
        num_planned=num_planned,
        num_ended=summary.num_ended,
        num_failed=summary.num_failed,
    )


def _remote_row(summary: "Summary") -> Row:
    """Return the row of a sweep whose folder is on another machine, so that its plan is unknown."""
    num_ended = summary.num_ended
    return Row(
        summary.name,
        _state_of(summary, num_ended if summary.is_done else num_ended + 1),
        ended=num_ended,
        planned=num_ended if summary.is_done else None,
        failed=summary.num_failed,
        heard_at=summary.last_activity_at,
        why="its folder is on another machine",
    )


def _print_table(rows: list[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("sweep", "state")
    for header in ("arms", "done", "failed", "last event"):
        table.add_column(header, justify="right")
    table.add_column("question")
    now = time.time()
    for row in rows:
        progress = "-" if row.ended is None else f"{row.ended}/{'?' if row.planned is None else row.planned}"
        age = "-" if row.heard_at is None else f"{short_duration(max(0.0, now - row.heard_at))} ago"
        cells = (
            escape_to_line(row.name),
            row.state.value,
            "-" if row.arms is None else str(row.arms),
            progress,
            "-" if row.failed is None else str(row.failed),
            age,
            _shorten_question(row.why or row.question),
        )
        table.add_row(*map(Text, cells))
    out().print(table)
    for row in rows:
        if row.state in (SweepState.DAMAGED, SweepState.FOREIGN):
            print_line(f"{row.state}: {escape_to_line(row.name)}: {escape_to_line(row.why)}")


def _shorten_question(text: str) -> str:
    line = escape_to_line(" ".join(text.split()))
    return line if len(line) <= MAX_QUESTION_LENGTH else f"{line[: MAX_QUESTION_LENGTH - 3]}..."
