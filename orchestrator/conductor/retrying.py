"""Select the failed trials that may run again, from records only, before a sweep is claimed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import InputError
from orchestrator.plan.planned_trials import replacement_trials
from orchestrator.plan.types import Plan
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.wording import amount, hint

RETRYABLE_KINDS = frozenset({OutcomeKind.CRASHED, OutcomeKind.TIMED_OUT, OutcomeKind.OUT_OF_MEMORY})
"""Failures that another attempt may fix; a divergence is excluded, as it follows from the settings."""
KINDS_BY_NAME: Mapping[str, frozenset[OutcomeKind]] = {
    "failed": RETRYABLE_KINDS,
    **{kind.value: frozenset({kind}) for kind in OutcomeKind if kind.is_failure},
}
"""Outcomes by each name that `--retry` accepts in addition to names of trials."""
MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class Retry:
    """Request to run failed trials again."""

    selectors: tuple[str, ...]
    """Names of trials or kinds, as `choose_retries` accepts them."""
    from_scratch: bool = False
    """Whether the trials start from scratch instead of from their checkpoints."""


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """Trials selected for a retry."""

    trial_ids: tuple[str, ...]
    """Ids of the trials, in the order of the plan."""
    skip_messages: tuple[str, ...] = ()
    """Messages that state why trials of a requested kind are not retried, one for each reason."""


def choose_retries(plan: Plan, records: Iterable[Record], selectors: Sequence[str]) -> RetryChoice:
    """Return the failed trials to which `selectors` refer.

    Args:
        plan: The plan of the sweep.
        records: All records of the sweep.
        selectors: Names in `KINDS_BY_NAME`, ids of trials or prefixes of ids, or ARM/PHASE/NUMBER.

    Raises:
        InputError: For an unknown name, and for a named trial that cannot run again.
    """
    record_by_id = {record.trial_id: record for record in records}
    planned = [*plan.trials, *(trial for trial in replacement_trials(plan) if trial.trial_id in record_by_id)]
    recorded = (record_by_id[trial.trial_id] for trial in planned if trial.trial_id in record_by_id)
    failing_records = [record for record in recorded if _has_failed(record)]
    started_ids = {trial_id for trial_id, record in record_by_id.items() if record.attempts}
    confirmations = [trial for trial in plan.trials if trial.phase in {"confirm", "cross"}]
    confirmed_searches = {
        (arm, trial.repeat)
        for trial in confirmations
        if trial.trial_id in started_ids
        for arm in (trial.arm, trial.settings_of)
    }
    chosen_ids: set[str] = set()
    num_refused_by_reason: dict[str, int] = {}
    for selector in selectors:
        is_single_trial = selector not in KINDS_BY_NAME
        if is_single_trial:
            choices = [_find_failed_record(planned, record_by_id, failing_records, selector)]
        else:  # trials that never began are reopened with the trials that they depend on
            kinds = KINDS_BY_NAME[selector]
            choices = [record for record in failing_records if record.outcome in kinds and record.attempts]
        for record in choices:
            if not (reason := _reason_not_retried(record, confirmed_searches)):
                chosen_ids.add(record.trial_id)
            elif is_single_trial:
                raise InputError(f"--retry {selector}: trial {record.place} cannot run again: {reason}")
            else:
                num_refused_by_reason[reason] = num_refused_by_reason.get(reason, 0) + 1
    return RetryChoice(
        tuple(trial.trial_id for trial in planned if trial.trial_id in chosen_ids),
        tuple(
            f"{amount(count, 'trial')} not retried: {reason}"
            for reason, count in num_refused_by_reason.items()
        ),
    )


def _reason_not_retried(record: Record, confirmed_searches: set[tuple[str, int]]) -> str:
    if not record.attempts:
        return "it never started, since a trial that it depends on had failed; retry that trial instead"
    if record.phase == "search" and (record.arm, record.repeat) in confirmed_searches:
        return (
            f"the search of arm {record.arm} is over, since confirm trials of its winner have started; "
            "launch the spec under another name to search again"
        )
    return ""


def _find_failed_record(
    planned_trials: Sequence[PlannedTrial],
    record_by_id: Mapping[str, Record],
    failed_records: Sequence[Record],
    selector: str,
) -> Record:
    matches = [trial for trial in planned_trials if selector in (trial.trial_id, trial.place)]
    matches = matches or [
        trial for trial in planned_trials if selector and trial.trial_id.startswith(selector)
    ]
    listed = failed_records[:MAX_LISTED]
    listing = ", ".join(f"{record.trial_id} ({record.place}: {record.outcome})" for record in listed)
    remainder = f" and {len(failed_records) - MAX_LISTED} more" if len(failed_records) > MAX_LISTED else ""
    failed_listing = f"failed trials: {listing or 'none'}{remainder}"
    if len(matches) != 1:
        names = [*KINDS_BY_NAME, *(record.trial_id for record in failed_records)]
        names += [record.place for record in failed_records]
        question = hint(selector, names).partition("Known:")[0].strip()
        raise InputError(
            f"--retry must name {', '.join(KINDS_BY_NAME)} or one trial by id or ARM/PHASE/NUMBER, got "
            f"{selector!r}, which names {len(matches) or 'none'}. {question} {failed_listing}".replace(
                "  ", " "
            )
        )
    record = record_by_id.get(matches[0].trial_id)
    if record is None or not _has_failed(record):
        standing = "has not begun" if record is None else record.standing
        raise InputError(
            f"--retry must name failed trials, got {matches[0].place} ({standing}); {failed_listing}"
        )
    return record


def _has_failed(record: Record) -> bool:
    return record.outcome is not None and record.outcome.is_failure
