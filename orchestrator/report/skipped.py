"""Trials that never began because what they were for had been decided: how many, and why."""

from collections import Counter
from collections.abc import Iterable

from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount


def skipped(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence a reason, in the order in which they came up, with the number of trials it spared."""
    found = Counter(each.reason for each in records if each.outcome is OutcomeKind.SKIPPED)
    return tuple(f"{reason} ({amount(count, 'trial')} skipped)" for reason, count in found.items())
