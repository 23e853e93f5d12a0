"""Where sweeps, data and the tracking store live unless the command line says otherwise."""

import errno
import os
import shlex
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.files.redact import redact_url
from orchestrator.files.sqlite_files import absolute, has_password, url_of
from orchestrator.identity import SweepFolder
from search_spaces.wording import hint

RUNS_VARIABLE = "HALTSWEEP_RUNS"
DATA_VARIABLE = "HALTSWEEP_DATA"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
UNTRACKED = "none"
"""In place of a tracking URI: no MLflow."""


def runs_root(given: Path | None) -> Path:
    """`--runs`, else $HALTSWEEP_RUNS, else `runs` in the working directory. Raises InputError for a file."""
    return _folder(given or Path(os.environ.get(RUNS_VARIABLE) or "runs"), "sweeps", "--runs")


def data_root(given: Path | None) -> Path:
    """`--data`, else $HALTSWEEP_DATA, else `data` in the working directory. Raises InputError for a file."""
    return _folder(given or Path(os.environ.get(DATA_VARIABLE) or "data"), "datasets", "--data")


def tracking_uri(given: str | None, runs: Path) -> str:
    """`--tracking`, else $MLFLOW_TRACKING_URI, else an SQLite file beside the sweeps.

    Raises InputError for `none`, which is for `launch` alone (from the environment it means nothing here),
    and for SQLite with a password.
    """
    if given == UNTRACKED:
        raise InputError(
            f"--tracking {UNTRACKED} goes with launch alone: here it must name an MLflow; leave it out"
        )
    steering = os.environ.get(TRACKING_VARIABLE)
    named = given or (steering if steering != UNTRACKED else None)
    if named is not None and has_password(named):
        raise InputError(
            "an MLflow store in SQLite must be a file, without user or host, got "
            f"{redact_url(named)!r}; use sqlite:////absolute/path/mlflow.db, or http://HOST:PORT of a server"
        )
    return absolute(named or url_of(runs / "mlflow.db"))


def tracked_by_launch(given: str | None, runs: Path) -> str | None:
    """The same for a launch; None where it is to track nothing."""
    if (given or os.environ.get(TRACKING_VARIABLE)) == UNTRACKED:
        return None
    return tracking_uri(given, runs)


def find_sweep(name: str, runs: Path) -> SweepFolder:
    """The folder of a launched sweep, by name or path. Raises InputError with the nearest and all names."""
    for folder in (runs / name, Path(name)):
        if holds_sweep(folder):
            return SweepFolder(folder.resolve() if folder.name in {"", ".."} else folder)
    known = sorted(path.parent.name for path in runs.glob("*/plan.json"))
    raise InputError(f"no sweep named {name!r} in {runs}. {hint(name, known)}")


def holds_sweep(folder: Path) -> bool:
    """Whether a sweep was launched there."""
    try:
        return SweepFolder(folder).plan.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # so nothing can be called that
            return False
        raise


def command(verb: str, folder: SweepFolder, more: str = "") -> str:
    """What to type to do `verb` with a sweep, from this directory and with this environment."""
    near = folder.root.parent.resolve() == runs_root(None).resolve()
    where = "" if near else f" --runs {shlex.quote(str(folder.root.parent))}"
    return f"haltsweep {verb} {shlex.quote(folder.name)}{more and ' '}{more}{where}"


def more_budget(spent: str, folder: SweepFolder) -> str:
    """What to do about a sweep of whose budget is used up what `spent` says, so that nothing more begins."""
    return f"{spent}; for more, raise that limit: `{command('extend', folder, 'budget.LIMIT=MORE')}`"


def stopped_by_error(error: str, folder: SweepFolder) -> str:
    """Return the remedy for a sweep that stopped when the first trials of an arm crashed with one error."""
    retry = command("resume", folder, "--retry failed")
    go_on = command("extend", folder, "on_error=continue")
    return f"the sweep has stopped: {error}; correct that, then `{retry}`, or run the others with `{go_on}`"


def existing(folder: Path) -> Path:
    """The folder itself, else the nearest above it that is there. Raises InputError if none can be."""
    try:
        resolved = folder.resolve()
        return next(path for path in (resolved, *resolved.parents) if path.exists())
    except (RuntimeError, OSError) as error:  # RuntimeError: a link to itself, in Python before 3.13
        if isinstance(error, OSError) and error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        raise InputError(
            f"a folder must have a path that can be followed, got {str(folder)!r} ({error}); "
            "choose another one"
        ) from error


def _folder(path: Path, what: str, option: str) -> Path:
    found = existing(path)
    if not found.is_dir():
        raise InputError(
            f"the {what} must be kept in a folder, and {found} is a file; choose another {option}"
        )
    return path
