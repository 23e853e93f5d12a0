"""A sweep for notebooks: its trials and measurements as tables, its report as objects and figures.

    from orchestrator.read import figures, measurements, report, trials

    trials("quickstart").to_pandas()

Every function takes the name of a sweep, or its folder, and reads what there is at this moment: a sweep may
be running. Nothing of the sweep is written. `runs` is the folder of all sweeps, else $HALTSWEEP_RUNS, else
./runs; `storage` is the URL of a ledger that launch was given with --storage, where launch.json cannot tell.

Raises InputError for a sweep that is not there, StoreError for one that cannot be read.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.locations import runs_root
from orchestrator.cli.reading import opened

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.report.figures.panels import Image
    from orchestrator.report.results.types import Report

__all__ = ["figures", "measurements", "report", "trials"]


def trials(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "pa.Table":
    """One row a trial that was asked for, in that order.

    Columns: `trial_id`, `arm`, `phase` (search, confirm, posthoc), `number`, `seed`, `rank`, `outcome` (null
    while the trial has not ended), `reason`, `attempts`, `started_at`, `ended_at` (UTC), `commit` (of the
    folder it was launched from), `code` (digest of the code that ran, haltsweep's own included), `host`,
    `settings` (JSON, all of them), `step` and `seconds` of the last measurement; then `assignment.<path>` for
    what a search chose, `overrides.<path>` for what a posthoc trial was read under (nothing, where a
    checkpoint is read as trained for test splits that were added), `attribute.<name>` for texts that it
    reported, `metric.<name>` for what was measured last, and `counted.<name>` for the objective of a search
    that does not count by the last report. Null if a trial has no value.
    """
    from orchestrator.tracking.flat import trials_table

    with opened(name, _root(runs), storage) as sweep:
        return trials_table(sweep.newest_records(), sweep.plan)


def measurements(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "pa.Table":
    """One row a trial, step and metric, in the order in which they were reported.

    Columns: `trial_id`, `arm`, `phase`, `number`, `seed`, `step`, `seconds` of work, `at` (UTC), `metric`,
    `value`.
    """
    from orchestrator.tracking.flat import measurements_table

    with opened(name, _root(runs), storage) as sweep:
        return measurements_table(sweep.ledger.events(), sweep.plan)


def report(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "Report":
    """All that the report shows: cells, effects, verdicts, each with its n and the ids of its records."""
    from orchestrator.report.results.summary import summarise

    with opened(name, _root(runs), storage) as sweep:
        return summarise(sweep.plan, sweep.records(), sweep.spent())


def figures(name: str, *, runs: Path | str | None = None, storage: str | None = None) -> "dict[str, Image]":
    """The figures of the report by name. The last line of a cell shows one: `figures(name)["outcome-1"]`."""
    from orchestrator.report.figures.panels import images

    return images(report(name, runs=runs, storage=storage))


def _root(runs: Path | str | None) -> Path:
    return runs_root(None if runs is None else Path(runs))
