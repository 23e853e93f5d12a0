"""Read a sweep from a notebook or script: its trials and measurements as tables, its report, its figures.

Reading is safe while the sweep runs, and writes nothing. Example: `trials("quickstart").to_pandas()`.

All functions take these arguments:

- `name` is the name of a sweep, or its folder.
- `runs` is the folder of all sweeps; by default $HALTSWEEP_RUNS, else `./runs`.
- `storage` is the URL of the ledger. It is needed only if the sweep was launched with `--storage` and its
  file launch.json is missing.

All functions raise InputError if the sweep does not exist, and StoreError if it cannot be read.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.locations import runs_root
from orchestrator.cli.stored_sweep import open_stored_sweep

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.report.figures.panels import Image
    from orchestrator.report.results.types import Report

__all__ = ["figures", "measurements", "report", "trials"]


def trials(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "pa.Table":
    """Return a table with one row per trial, in the order in which the trials were started.

    Columns: `trial_id`, `arm`, `phase` (search, confirm, posthoc), `number`, `seed`, `rank`, `outcome` (null
    while the trial has not ended), `reason`, `attempts`, `started_at`, `ended_at` (UTC), `commit` (of the
    launch folder), `code` (digest of the code that ran, including haltsweep), `host`, `settings` (JSON),
    `step` and `seconds` of the last measurement. Further columns: `assignment.<path>` for a value that a
    search chose, `overrides.<path>` for a changed setting of a posthoc trial, `attribute.<name>` for a
    reported text, `metric.<name>` for the last value of a metric, and `counted.<name>` for an objective whose
    scope is not the last report. A value that a trial does not have is null.
    """
    from orchestrator.tracking.flat_tables import trials_table

    with open_stored_sweep(name, _root(runs), storage) as sweep:
        return trials_table(sweep.newest_records(), sweep.plan)


def measurements(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "pa.Table":
    """Return a table with one row per trial, step and metric, in the order of the reports.

    Columns: `trial_id`, `arm`, `phase`, `number`, `seed`, `step`, `seconds` of work, `at` (UTC), `metric`,
    `value`.
    """
    from orchestrator.tracking.flat_tables import measurements_table

    with open_stored_sweep(name, _root(runs), storage) as sweep:
        return measurements_table(sweep.ledger.events(), sweep.plan)


def report(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "Report":
    """Return the report as an object: results of every arm, differences and verdicts."""
    from orchestrator.report.results.summary import summarise

    with open_stored_sweep(name, _root(runs), storage) as sweep:
        return summarise(sweep.plan, sweep.records(), sweep.exhausted_budget())


def figures(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "dict[str, Image]":
    """Return the figures of the report by name, e.g. `outcome-1`; a notebook displays them as images."""
    from orchestrator.report.figures.panels import images

    return images(report(name, runs=runs, storage=storage))


def _root(runs: Path | str | None) -> Path:
    return runs_root(None if runs is None else Path(runs))
