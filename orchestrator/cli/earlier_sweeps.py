"""Read results of other sweeps: best params for a search, and the variance between their seeds."""

from collections.abc import Mapping
from pathlib import Path

from orchestrator.cli.locations import command, runs_root
from orchestrator.errors import InputError
from search_spaces.dimensions import Assignment


def read_best_params(runs: Path | None, name: str) -> Mapping[str, Assignment]:
    """Return the best params of every arm of the sweep `name` in the folder `runs`.

    Raises:
        InputError: The sweep is missing, has no search, or is still searching.
        StoreError: The sweep is not readable.
    """
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.conductor.winners import Candidate, rank_candidates
    from orchestrator.trials import OutcomeKind, num_ended

    with open_stored_sweep(name, runs_root(runs)) as sweep:
        plan, records = sweep.plan, sweep.newest_records()
        resume = command("resume", sweep.folder)
    if plan.search is None:
        raise InputError(f"must name a sweep that searched, got {name}, which has no search")
    search_records = [record for record in records if record.phase == "search"]
    num_search_ended = num_ended(search_records)
    if num_search_ended < (planned := sum(trial.phase == "search" for trial in plan.trials)):
        raise InputError(
            f"must name a sweep whose search has ended, got {name}, where {num_search_ended} of {planned} "
            f"search trials have; `{resume}` continues it"
        )
    objectives = [objective.metric for objective in plan.search.objectives]
    finished = [record for record in search_records if record.outcome is OutcomeKind.FINISHED]
    best_params: dict[str, Assignment] = {}
    for arm in plan.arms:
        candidates = [
            Candidate(record.number, record.assignment, values)
            for record in finished
            if record.arm == arm.name and (values := record.judged_by(objectives))
        ]
        if not candidates:
            raise InputError(
                f"must name a sweep with a finished trial, got {name}: no trial of {arm.name} finished"
            )
        best_params[arm.name] = rank_candidates(candidates, plan.search.objectives)[0].assignment
    return best_params


def read_spread(runs: Path | None, name: str, metric: str | None) -> float:
    """Return the standard deviation over seeds of the baseline of the sweep `name`.

    Args:
        runs: Folder of sweeps.
        name: Name of the sweep.
        metric: Metric to read; None for the primary outcome of the sweep.

    Raises:
        InputError: Fewer than 3 seeds measured the metric, or all values are equal.
        StoreError: The sweep is not readable.
    """
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.report.results.summary import summarise
    from orchestrator.statistics.paired import deviation
    from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS

    with open_stored_sweep(name, runs_root(runs)) as sweep:
        report = summarise(sweep.plan, sweep.records())
    outcome = metric or next(iter(report.outcomes), "")
    cell = report.cell(report.arms[0], outcome)
    values = [value for _, value in cell.by_unit] if cell else []
    if len(values) < MIN_VERDICT_SEEDS:
        raise InputError(
            f"must name a sweep with at least {MIN_VERDICT_SEEDS} confirmed seeds of "
            f"{outcome or 'its outcome'}, got {name}, whose {report.arms[0]} has {len(values)}"
        )
    if not (spread := deviation(values)):
        raise InputError(
            f"must name a sweep whose seeds differ, got {name}, where all seeds have the same {outcome}"
        )
    return spread
