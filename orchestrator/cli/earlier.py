"""What the searches of other sweeps found best: where a spec begins with that."""

from collections.abc import Mapping
from pathlib import Path

from orchestrator.cli.locations import command, runs_root
from orchestrator.errors import InputError
from search_spaces.dimensions import Assignment


def found_by(runs: Path | None, name: str) -> Mapping[str, Assignment]:
    """The best assignment of every arm of the sweep `name` in the folder `runs`.

    Raises InputError for a sweep that is not there, searched nothing, or is still searching; StoreError if it
    cannot be read.
    """
    from orchestrator.cli.reading import opened
    from orchestrator.conductor.winners import Candidate, best_first
    from orchestrator.trials import OutcomeKind

    with opened(name, runs_root(runs)) as sweep:
        plan, records = sweep.plan, sweep.newest_records()
        resume = command("resume", sweep.folder)
    if plan.search is None:
        raise InputError(f"must name a sweep that searched, got {name}, which has no search")
    searched = [each for each in records if each.phase == "search"]
    ended = sum(each.outcome is not None and each.outcome.final for each in searched)
    if ended < (planned := sum(each.phase == "search" for each in plan.trials)):
        raise InputError(
            f"must name a sweep whose search has ended, got {name}, where {ended} of {planned} search trials "
            f"have; `{resume}` continues it"
        )
    found: dict[str, Assignment] = {}
    for arm in plan.arms:
        candidates = [
            Candidate(
                each.number,
                each.assignment,
                tuple(each.last.metrics[one.metric] for one in plan.search.objectives),
            )
            for each in searched
            if each.arm == arm.name and each.outcome is OutcomeKind.FINISHED and each.last is not None
        ]
        if not candidates:
            raise InputError(
                f"must name a sweep that found something, got {name}: no trial of {arm.name} finished"
            )
        found[arm.name] = best_first(candidates, plan.search.objectives)[0].assignment
    return found
