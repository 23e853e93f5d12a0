"""Delete the files of a launch that ended before its first trial.

A failed or interrupted launch deletes its own files. After a kill, the next launch with that name does.
"""

from contextlib import suppress

from orchestrator.errors import HaltsweepError, InputError, StoreError
from orchestrator.execution.sweep.launch_folder import LAUNCHER_FILE, Setup, read_setup
from orchestrator.execution.sweep.removal import (
    finish_removal,
    remove_sweep,
    rename_for_removal,
    unfinished_removals,
)
from orchestrator.files.abandoned_folders import is_silent
from orchestrator.files.json_values import from_json_values, parse_json
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.store import Ledger, OnLeaseTaken
from orchestrator.ledger.summary import has_sweep
from trainables.process_identity import ProcessState


def clear_unstarted(folder: SweepFolder, on_fenced: OnLeaseTaken | None = None) -> None:
    """Delete the files that a killed launch or removal left at the folder of a new sweep.

    Args:
        folder: Folder of the sweep.
        on_fenced: See `Ledger.claim`. If given, a launch whose process cannot be checked counts as dead.

    Raises:
        InputError: Another launch with that name is, or may be, running.
        StoreError: Files of a dead launch cannot be deleted.
    """
    root = SweepFolder(folder.root.resolve())
    for removed_folder in unfinished_removals(root.root):
        finish_removal(removed_folder)
    with suppress(_SweepNotDeletable):
        setup = _read_unstarted_setup(root)
        launcher = _read_launcher(root)
        if launcher is not None and not launcher.is_same_process(Holder.current()):
            _refuse_live_launcher(root, launcher, trusts_launcher=on_fenced is None)
        remove_sweep(root, setup, on_fenced=on_fenced)


def refuse_foreign(folder: SweepFolder, setup: Setup) -> None:
    """Raise `InputError` if a shared database has a sweep of this name from another folder."""
    if setup.storage is None or not has_sweep(setup.storage, folder.name):
        return
    with Ledger.open(setup.storage, folder.name) as ledger:
        if ledger.has_trials or ledger.is_held():
            raise InputError(
                f"a sweep's name must be unique in its database, and {folder.name!r} was launched there "
                "from another folder; choose another name"
            )


def undo_launch(folder: SweepFolder) -> bool:
    """Delete the sweep that this process launched if no trial has started; return whether it was deleted.

    Errors are ignored, since the next launch deletes the remaining files.
    """
    root = SweepFolder(folder.root.resolve())
    launcher = _read_launcher(root)
    if launcher is None or not launcher.is_same_process(Holder.current()):
        return False
    with suppress(_SweepNotDeletable, HaltsweepError, OSError):
        remove_sweep(root, _read_unstarted_setup(root))
        return True
    return False


def undo_launch_folder(folder: SweepFolder) -> None:
    """Delete only the folder of the launch, since another process holds the sweep of that name."""
    root = SweepFolder(folder.root.resolve())
    launcher = _read_launcher(root)
    if launcher is not None and launcher.is_same_process(Holder.current()):
        with suppress(HaltsweepError, OSError):
            finish_removal(rename_for_removal(root))


class _SweepNotDeletable(Exception):
    """Raised if a sweep has started a trial, or if only a person can decide about its files."""


def _read_unstarted_setup(root: SweepFolder) -> Setup:
    """Return the setup of a sweep that has started no trial, else raise `_SweepNotDeletable`."""
    traces = (root.checkpoint_folder, root.records, root.measurements, root.report)
    if root.root.is_symlink() or not root.plan.is_file() or any(trace.exists() for trace in traces):
        raise _SweepNotDeletable
    try:
        setup = read_setup(root)
        if setup.storage is not None or root.ledger.exists():
            with Ledger.open(setup.ledger_url(root), root.name, create=True) as ledger:
                if ledger.has_trials or ledger.is_held():
                    raise _SweepNotDeletable
    except StoreError:
        raise _SweepNotDeletable from None
    return setup


def _read_launcher(root: SweepFolder) -> Holder | None:
    try:
        return from_json_values(Holder, parse_json(read_regular(root.root / LAUNCHER_FILE)))
    except (OSError, ValueError, TypeError):
        return None


def _refuse_live_launcher(root: SweepFolder, launcher: Holder, *, trusts_launcher: bool) -> None:
    """Raise `InputError` if the launcher is alive, or if it may be alive and `trusts_launcher` is True."""
    state = launcher.state()
    if state is ProcessState.ALIVE:
        remedy = "wait for it"
    elif state is ProcessState.UNKNOWN and trusts_launcher and not is_silent(root.root):
        remedy = "wait for it, or if that process is gone launch with --take-over"
    else:
        return
    raise InputError(
        f"a sweep can be launched only once, but {launcher} is launching {root.name!r}; {remedy}, or "
        "choose another name"
    )
