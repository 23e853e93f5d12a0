"""Selects the failed trials that may run again, from records only, before a sweep is claimed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import InputError
from orchestrator.plan.planned_trials import replacements
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.wording import amount, hint

FAILED = frozenset({OutcomeKind.CRASHED, OutcomeKind.TIMED_OUT, OutcomeKind.OUT_OF_MEMORY})
"""Failures that another attempt may fix; a divergence is excluded, as it follows from the settings."""
KINDS: Mapping[str, frozenset[OutcomeKind]] = {
    "failed": FAILED,
    **{kind.value: frozenset({kind}) for kind in OutcomeKind if kind.failed},
}
"""Outcomes by each name that `--retry` accepts in addition to names of trials."""
LISTED = 8


@dataclass(frozen=True, slots=True)
class Retry:
    """Request to run failed trials again."""

    asked: tuple[str, ...]
    """Names of trials or kinds, as `choose` accepts them."""
    from_scratch: bool = False
    """Whether the trials start from scratch instead of from their checkpoints."""


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """Trials selected for a retry."""

    trial_ids: tuple[str, ...]
    """Ids of the trials, in the order of the plan."""
    left_out: tuple[str, ...] = ()
    """Messages that state why trials of a requested kind are not retried, one for each reason."""


def choose(plan: Plan, records: Iterable[Record], selectors: Sequence[str]) -> RetryChoice:
    """Return the trials that `selectors` names.

    Args:
        plan: The plan of the sweep.
        records: All records of the sweep.
        selectors: Names in `KINDS`, ids of trials or prefixes of ids, or ARM/PHASE/NUMBER.

    Raises:
        InputError: For an unknown name, and for a named trial that cannot run again.
    """
    known = {record.trial_id: record for record in records}
    planned = [*plan.trials, *(trial for trial in replacements(plan) if trial.trial_id in known)]
    failed = [
        known[trial.trial_id]
        for trial in planned
        if trial.trial_id in known and _has_failed(known[trial.trial_id])
    ]
    confirming = {
        (arm, trial.repeat)
        for trial in plan.trials
        if trial.phase in {"confirm", "cross"} and trial.trial_id in known and known[trial.trial_id].attempts
        for arm in (trial.arm, trial.settings_of)
    }
    chosen: set[str] = set()
    left_out: dict[str, int] = {}
    for word in selectors:
        named = KINDS.get(word) is None
        found = [_named(planned, known, failed, word)] if named else _of_kind(failed, KINDS[word])
        for record in found:
            if not (why := _refusal(record, confirming)):
                chosen.add(record.trial_id)
            elif named:
                raise InputError(f"--retry {word}: trial {record.place} cannot run again: {why}")
            else:
                left_out[why] = left_out.get(why, 0) + 1
    return RetryChoice(
        tuple(trial.trial_id for trial in planned if trial.trial_id in chosen),
        tuple(f"{amount(count, 'trial')} not retried: {why}" for why, count in left_out.items()),
    )


def _of_kind(failed_records: Sequence[Record], kinds: frozenset[OutcomeKind]) -> list[Record]:
    """Return the failed trials of these kinds that have begun.

    Trials that never began are reopened with the trials that they depend on.
    """
    return [record for record in failed_records if record.outcome in kinds and record.attempts]


def _refusal(record: Record, confirming: set[tuple[str, int]]) -> str:
    if not record.attempts:
        return "it never began, since what it needs had failed; retry that instead"
    if record.phase == "search" and (record.arm, record.repeat) in confirming:
        return (
            f"the search of arm {record.arm} is over, for confirm trials of its winner have begun; "
            "launch the spec under another name to search again"
        )
    return ""


def _named(
    planned_trials: Sequence[PlannedTrial],
    record_by_id: Mapping[str, Record],
    failed_records: Sequence[Record],
    word: str,
) -> Record:
    found = [trial for trial in planned_trials if word in (trial.trial_id, trial.place)]
    found = found or [trial for trial in planned_trials if word and trial.trial_id.startswith(word)]
    listed = ", ".join(
        f"{record.trial_id} ({record.place}: {record.outcome})" for record in failed_records[:LISTED]
    )
    more = f" and {len(failed_records) - LISTED} more" if len(failed_records) > LISTED else ""
    there = f"failed trials: {listed or 'none'}{more}"
    if len(found) != 1:
        near = hint(
            word,
            [
                *KINDS,
                *(record.trial_id for record in failed_records),
                *(record.place for record in failed_records),
            ],
        ).partition("Known:")
        raise InputError(
            f"--retry must name {', '.join(KINDS)} or one trial by id or ARM/PHASE/NUMBER, got {word!r}, "
            f"which names {len(found) or 'none'}. {near[0].strip()} {there}".replace("  ", " ")
        )
    record = record_by_id.get(found[0].trial_id)
    if record is None or not _has_failed(record):
        how = "has not begun" if record is None else record.standing
        raise InputError(f"--retry must name failed trials, and {found[0].place} ({how}) is none; {there}")
    return record


def _has_failed(record: Record) -> bool:
    return record.outcome is not None and record.outcome.failed
