"""Determine the folders of sweeps and data, and the tracking store, from options and the environment."""

import errno
import os
import shlex
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.files.redact import redact_url
from orchestrator.files.sqlite_files import has_password, sqlite_url, to_absolute_url
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount, hint

RUNS_VARIABLE = "HALTSWEEP_RUNS"
DATA_VARIABLE = "HALTSWEEP_DATA"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
NO_TRACKING = "none"
"""Value of a tracking URI that disables MLflow."""
CHANGED_CODE_HINT = "with --changed-code if you changed the code"


def runs_root(option: Path | None) -> Path:
    """Return `--runs`, $HALTSWEEP_RUNS or `runs`, in this order. Raise `InputError` for a file."""
    return _require_folder(option or Path(os.environ.get(RUNS_VARIABLE) or "runs"), "sweeps", "--runs")


def data_root(option: Path | None) -> Path:
    """Return `--data`, $HALTSWEEP_DATA or `data`, in this order. Raise `InputError` for a file."""
    return _require_folder(option or Path(os.environ.get(DATA_VARIABLE) or "data"), "datasets", "--data")


def tracking_uri(option: str | None, runs: Path) -> str:
    """Return `--tracking`, or $MLFLOW_TRACKING_URI, or an SQLite file next to the sweeps.

    Raises:
        InputError: The option is `none`, which only `launch` supports, or the URI is SQLite with a password.
            A `none` in the environment is ignored.
    """
    if option == NO_TRACKING:
        raise InputError(
            f"--tracking {NO_TRACKING} is an option of launch only; omit it, or name an MLflow store"
        )
    environment_uri = os.environ.get(TRACKING_VARIABLE)
    uri = option or (environment_uri if environment_uri != NO_TRACKING else None)
    if uri is not None and has_password(uri):
        raise InputError(
            "an MLflow store in SQLite must be a file, without user or host, got "
            f"{redact_url(uri)!r}; use sqlite:////absolute/path/mlflow.db, or http://HOST:PORT of a server"
        )
    return to_absolute_url(uri or sqlite_url(runs / "mlflow.db"))


def launch_tracking_uri(option: str | None, runs: Path) -> str | None:
    """Return the tracking URI for a launch; None if tracking is disabled."""
    if (option or os.environ.get(TRACKING_VARIABLE)) == NO_TRACKING:
        return None
    return tracking_uri(option, runs)


def find_sweep(name: str, runs: Path) -> SweepFolder:
    """Return the folder of a launched sweep, by name or path.

    Raises:
        InputError: No sweep matches; the message lists similar names.
    """
    for folder in (runs / name, Path(name)):
        if is_sweep(folder):
            return SweepFolder(folder.resolve() if folder.name in {"", ".."} else folder)
    names = sorted(path.parent.name for path in runs.glob("*/plan.json"))
    raise InputError(f"no sweep named {name!r} in {runs}. {hint(name, names)}")


def is_sweep(folder: Path) -> bool:
    """Return whether the folder contains a launched sweep."""
    try:
        return SweepFolder(folder).plan.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no sweep can have so long a name
            return False
        raise


def command(verb: str, folder: SweepFolder, arguments: str = "") -> str:
    """Return the shell command that applies `verb` to a sweep from this directory and environment."""
    is_default = folder.root.parent.resolve() == runs_root(None).resolve()
    runs_option = "" if is_default else f" --runs {shlex.quote(str(folder.root.parent))}"
    return f"haltsweep {verb} {shlex.quote(folder.name)}{arguments and ' '}{arguments}{runs_option}"


def budget_advice(budget_reason: str, folder: SweepFolder) -> str:
    """Return the advice for a sweep that has used up its budget."""
    return f"{budget_reason}; for more, raise that limit: `{command('extend', folder, 'budget.LIMIT=MORE')}`"


def failure_advice(num_failed: int, folder: SweepFolder, *, with_retry: bool) -> str:
    """Return the commands that display the reasons of failures and that run these trials again."""
    reasons = f"{amount(num_failed, 'trial')} failed; for the reasons: {command('status', folder)}"
    retry = f"; to run them again: {command('resume', folder, '--retry failed')} ({CHANGED_CODE_HINT})"
    return reasons + retry * with_retry


def error_advice(error: str, folder: SweepFolder) -> str:
    """Return the remedy for a sweep that stopped when the first trials of an arm crashed with one error."""
    retry = command("resume", folder, "--retry failed")
    continue_command = command("extend", folder, "on_error=continue")
    return (
        f"the sweep has stopped: {error}; correct that, then `{retry}` ({CHANGED_CODE_HINT}), or run the "
        f"others with `{continue_command}`"
    )


def nearest_existing(folder: Path) -> Path:
    """Return the folder or its nearest existing parent. Raise `InputError` for an unusable path."""
    try:
        resolved = folder.resolve()
        return next(path for path in (resolved, *resolved.parents) if path.exists())
    except (RuntimeError, OSError) as error:  # Python before 3.13 raises RuntimeError for a link to itself
        if isinstance(error, OSError) and error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        raise InputError(
            f"a folder must have a valid path, got {str(folder)!r} ({error}); choose another one"
        ) from error


def _require_folder(path: Path, content: str, option: str) -> Path:
    folder = nearest_existing(path)
    if not folder.is_dir():
        raise InputError(f"{content} need a folder, but {folder} is a file; choose another {option}")
    return path
