"""Implement `haltsweep remove`, which deletes a sweep after listing the data that will be deleted."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.display.console import print_error, print_line
from orchestrator.cli.display.lease_messages import report_fenced
from orchestrator.cli.locations import is_sweep, runs_root, tracking_uri
from orchestrator.cli.options import Runs, Storage, SweepName, TakeOver, Tracking
from orchestrator.errors import InputError, StoreAccessDenied, StoreError
from orchestrator.files.known_addresses import require_known
from orchestrator.identity import SweepFolder
from search_spaces.wording import hint

if TYPE_CHECKING:
    from orchestrator.execution.sweep.launch_folder import Setup


def remove(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Delete its runs in MLflow too.")] = False,
    take_over: TakeOver = False,
    runs: Runs = None,
    storage: Storage = None,
    tracking: Tracking = None,
) -> None:
    """Delete a sweep: its folder, its ledger and, with --mlflow, its MLflow runs."""
    root = runs_root(runs)
    if _finish_removals(root / name):
        return
    subject = _find_sweep(name, root, storage)
    launched_uri = subject.setup.tracking_uri if subject.setup and not tracking else None
    if mlflow:
        require_known(launched_uri, "--tracking")
    uri = tracking_uri(tracking or launched_uri, root)
    if not yes:
        _confirm(subject, uri if mlflow else None)
    _delete(subject, uri if mlflow else None, take_over=take_over)
    print_line(f"{subject.name}: removed")


@dataclass(frozen=True, slots=True)
class _SweepToRemove:
    """A sweep on this machine or in a database, to be removed."""

    name: str
    runs: Path
    folder: SweepFolder | None
    """Folder of the sweep; None if only its rows in a database are on this machine."""
    setup: "Setup | None"
    """Setup of the sweep; None if launch.json is damaged, and then the ledger must be in the folder."""
    storage: str | None
    """URL of a ledger outside the folder."""


def _finish_removals(root: Path) -> bool:
    """Finish interrupted removals of the sweep; return whether nothing else is left to remove."""
    from orchestrator.execution.sweep.removal import finish_removal, unfinished_removals

    leftover_folders = unfinished_removals(root) if root.name not in {"", "..", "."} else []
    for folder in leftover_folders:
        finish_removal(folder)
    if leftover_folders and not root.exists():
        print_line(f"{root.name}: removed; an earlier removal had been interrupted")
        return True
    return False


def _find_sweep(name: str, root: Path, storage: str | None) -> _SweepToRemove:
    """Return the sweep with this name or folder, even if its files are damaged.

    Raises:
        InputError: No sweep matches; the message lists similar names.
    """
    from orchestrator.cli.commands.listing import sweep_folders
    from orchestrator.execution.sweep.launch_folder import Setup, read_setup

    sweeps = sweep_folders(root)
    path = SweepFolder(Path(name))
    candidates = [sweep for sweep in (SweepFolder(root / name), path) if is_sweep(sweep.root)]
    match = next(
        (sweep for sweep in (*candidates, *sweeps) if sweep.name == name or sweep in candidates), None
    )
    if match is None:
        if storage is None:
            raise InputError(
                f"no sweep named {name!r} in {root}. {hint(name, [sweep.name for sweep in sweeps])}"
            )
        return _SweepToRemove(name, root, None, None, storage)
    match = SweepFolder(match.root.absolute())
    try:
        setup = read_setup(match)
    except StoreAccessDenied:
        raise
    except StoreError as error:
        print_error(f"damaged: {error}")
        given_storage = Setup(Path(), storage=storage) if storage is not None else None
        return _SweepToRemove(match.name, match.root.parent, match, given_storage, storage)
    return _SweepToRemove(match.name, match.root.parent, match, setup, setup.storage or storage)


def _confirm(subject: _SweepToRemove, uri: str | None) -> None:
    """Print what will be deleted and ask for confirmation.

    Raises:
        InputError: No terminal is available for the question.
        typer.Exit: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InputError(
            f"removing {subject.name!r} needs a confirmation, and there is no terminal to ask for it; "
            "give --yes if you are sure"
        )
    print_line(f"of {subject.name}, this deletes:")
    for line in _describe_deletion(subject, uri):
        print_line(f"  {line}")
    if not typer.confirm("Delete it?", default=False):
        print_line("nothing was deleted")
        raise typer.Exit(1)


def _describe_deletion(subject: _SweepToRemove, uri: str | None) -> list[str]:
    from orchestrator.files.redact import redact_url
    from orchestrator.ledger.deletion import num_events

    lines = []
    if subject.folder is not None:
        files, size = _folder_size(subject.folder.root)
        lines.append(f"folder {subject.folder.root}: {files:,} files, {_format_bytes(size)}")
    if subject.storage is not None:
        rows = num_events(subject.storage, subject.name)
        lines.append(f"{rows:,} events in {redact_url(subject.storage)}")
    if subject.setup is not None and subject.setup.checkpoints is not None:
        lines.append(f"its checkpoints in {redact_url(subject.setup.checkpoints)}")
    if uri is not None:
        lines.append(f"its runs in the MLflow at {redact_url(uri)}")
    else:
        lines.append("nothing in MLflow; to delete its runs too, give --mlflow")
    return lines


def _delete(subject: _SweepToRemove, uri: str | None, *, take_over: bool) -> None:
    from orchestrator.execution.checkpoints.checkpoint_stores import StoreUnreachable
    from orchestrator.execution.sweep import removal

    on_fenced = report_fenced if take_over else None
    if subject.folder is not None:
        try:
            removal.remove_sweep(subject.folder, subject.setup, uri, on_fenced=on_fenced)
        except StoreUnreachable as error:
            raise InputError(f"{subject.name} was not removed: {error}") from error
        return
    assert subject.storage is not None, "a sweep without a folder has a database"
    removal.remove_database_sweep(
        subject.storage, SweepFolder(subject.runs / subject.name), uri, on_fenced=on_fenced
    )


def _folder_size(folder: Path) -> tuple[int, int]:
    """Return the number of files and bytes below `folder`, without following links."""
    files = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            files += 1
            try:
                size += (Path(place) / name).lstat().st_size
            except OSError:  # the file was deleted meanwhile
                continue
    return files, size


def _format_bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
