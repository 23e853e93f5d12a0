"""Test splits that were added to a sweep: what is read of them later belongs to the confirm trials."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.identity import canonical
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, Record

Place = tuple[str, int | None, int, str]


def with_late_splits(plan: Plan, records: Sequence[Record]) -> list[Record]:
    """Records in which trials have the values of splits that their checkpoints were read again for.

    The records of those readings are left out. Of the others only `last.metrics` changes.
    """
    late = {each.trial_id: each.late_splits for each in plan.trials if each.late_splits}
    if not late:
        return list(records)
    read: dict[Place, dict[str, float]] = {}
    for each in records:
        if each.trial_id in late and each.outcome is OutcomeKind.FINISHED and each.last is not None:
            splits = late[each.trial_id]
            values = {k: v for k, v in each.last.metrics.items() if k.rpartition("/")[0] in splits}
            read.setdefault(_place(each), {}).update(values)
    return [_added(each, read) for each in records if each.trial_id not in late]


def _added(record: Record, read: dict[Place, dict[str, float]]) -> Record:
    found = read.get(_place(record)) if record.phase != "search" else None
    if not found or record.last is None:
        return record
    return replace(record, last=replace(record.last, metrics={**record.last.metrics, **found}))


def _place(record: Record) -> Place:
    """Of a confirm trial, or of one reading of it."""
    return record.arm, record.rank, record.seed, canonical(dict(record.overrides))


def awaited(plan: Plan, records: Sequence[Record]) -> frozenset[str]:
    """Splits for which some checkpoint is still to be read again."""
    ended = {each.trial_id for each in records if each.outcome is not None and each.outcome.final}
    return frozenset(
        split for each in plan.trials if each.trial_id not in ended for split in each.late_splits
    )
