"""What a search without confirm trials found: values of the split that chose them, no test of anything."""

from collections.abc import Sequence

from orchestrator.conductor.winners import Candidate, best_first
from orchestrator.plan.types import Plan
from orchestrator.report.types import SearchBest
from orchestrator.trials import OutcomeKind, Record

NO_CLAIM = (
    "The best of a search is chosen by the very values that are shown: they are better than what the same "
    "settings give again, the more so the more trials there were, and support no claim about arms. `confirm` "
    "in the spec retrains the best of every arm on seeds that no search has seen, and reads test splits."
)


def search_bests(plan: Plan, records: Sequence[Record]) -> tuple[SearchBest, ...]:
    """The best finished trial of every arm, ranked as for `confirm`; nothing where the plan confirms."""
    if plan.search is None or plan.confirm is not None:
        return ()
    wanted = [each.metric for each in plan.search.objectives]
    found = []
    for arm in plan.arms:
        own = {each.number: each for each in records if each.arm == arm.name and _finished(each, wanted)}
        values = {number: _values(each, wanted) for number, each in own.items()}
        candidates = [Candidate(number, own[number].assignment, each) for number, each in values.items()]
        for best in best_first(candidates, plan.search.objectives)[:1]:
            measured = dict(zip(wanted, best.values, strict=True))
            record_id = own[best.number].trial_id
            found.append(SearchBest(arm.name, measured, dict(best.assignment), record_id, len(own)))
    return tuple(found)


def _finished(record: Record, wanted: Sequence[str]) -> bool:
    ended = record.phase == "search" and record.outcome is OutcomeKind.FINISHED
    return ended and record.last is not None and all(name in record.last.metrics for name in wanted)


def _values(record: Record, wanted: Sequence[str]) -> tuple[float, ...]:
    assert record.last is not None, "a finished trial was measured"
    return tuple(record.last.metrics[name] for name in wanted)
