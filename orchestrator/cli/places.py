"""Where sweeps, data and the tracking store live unless the command line says otherwise."""

import os
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.identity import SweepFolder
from search_spaces.wording import hint

RUNS_VARIABLE = "HALTSWEEP_RUNS"
DATA_VARIABLE = "HALTSWEEP_DATA"
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"


def runs_root(given: Path | None) -> Path:
    """`--runs`, else $HALTSWEEP_RUNS, else `runs` in the working directory."""
    return given or Path(os.environ.get(RUNS_VARIABLE) or "runs")


def data_root(given: Path | None) -> Path:
    """`--data`, else $HALTSWEEP_DATA, else `data` in the working directory."""
    return given or Path(os.environ.get(DATA_VARIABLE) or "data")


def tracking_uri(given: str | None, runs: Path) -> str:
    """`--tracking`, else $MLFLOW_TRACKING_URI, else an SQLite file beside the sweeps."""
    return given or os.environ.get(TRACKING_VARIABLE) or f"sqlite:///{(runs / 'mlflow.db').resolve()}"


def find_sweep(name: str, runs: Path) -> SweepFolder:
    """The folder of a launched sweep, by name or path. Raises InputError with the nearest name and all."""
    for folder in (runs / name, Path(name)):
        if SweepFolder(folder).plan.is_file():
            return SweepFolder(folder)
    known = sorted(path.parent.name for path in runs.glob("*/plan.json"))
    raise InputError(f"no sweep named {name!r} in {runs}. {hint(name, known)}")
