"""Test splits that come after confirm trials were asked for: their checkpoints are read again for these.

What was asked for has read, or will read, the splits that there were then. So each such trial gets a posthoc
trial of its own under the settings that it has, which reads what was added since; trials that nobody asked
for yet read all splits by themselves.
"""

from collections.abc import Collection, Iterator

from orchestrator.identity import digest
from orchestrator.plan.planned_trials import POSTHOC, SEARCH
from orchestrator.plan.types import Plan
from orchestrator.trials import PlannedTrial


def added_splits(old: Plan, new: Plan) -> tuple[str, ...]:
    """Splits that confirm trials of `new` read and those of `old` do not."""
    if old.confirm is None or new.confirm is None:
        return ()
    return tuple(each for each in new.confirm.splits if each not in old.confirm.splits)


def late_trials(
    old: Plan, new: Plan, asked: Collection[str], never: Collection[str]
) -> Iterator[PlannedTrial]:
    """Those of `old`, then one for each of its trials that was `asked` for before the splits were added.

    `never`: ids of trials that ended without being finished, of which nothing can be read.
    """
    yield from (each for each in old.trials if each.late_splits)
    splits = added_splits(old, new)
    for source in old.trials if splits else ():
        if source.phase == SEARCH or source.late_splits:
            continue
        if source.trial_id in asked and source.trial_id not in never:
            yield PlannedTrial(
                digest(source.trial_id, POSTHOC, list(splits)),
                source.arm,
                POSTHOC,
                0,  # it is numbered with the others of its arm
                source.seed,
                source.rank,
                source.overrides,
                splits,
            )
