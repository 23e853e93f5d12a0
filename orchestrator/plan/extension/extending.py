"""Extend a plan: existing trials keep their ids and numbers, and new trials are numbered after them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from orchestrator.errors import InputError
from orchestrator.identity import digest
from orchestrator.plan.extension.extension_rules import ADDABLE_PARTS, RequestedWork, refuse_change
from orchestrator.plan.planned_trials import CROSS, POSTHOC, SEARCH
from orchestrator.plan.types import Arm, Extension, Plan
from orchestrator.spec.differences import Difference, differences
from orchestrator.trials import PlannedTrial

PHASES = ("search", "confirm", "cross", "posthoc")


def allowed_changes(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], progress: RequestedWork
) -> tuple[Difference, ...]:
    """Return the differences between two specs.

    Args:
        name: Name of the sweep.
        old: Content of the present spec.
        new: Content of the new spec.
        progress: Progress of the sweep.

    Raises:
        InputError: There is no difference, or some differences cannot be applied; the message lists them.
    """
    changes = tuple(differences(old, new))
    if not changes:
        raise InputError(
            f"nothing to extend: {name} already has these settings. Name what to add, or continue the "
            f"sweep with haltsweep resume {name}. {ADDABLE_PARTS}"
        )
    reasons = [(difference, refuse_change(difference, progress)) for difference in changes]
    refusals = [f"  {difference}\n    {reason}" for difference, reason in reasons if reason]
    if refusals:
        raise InputError("\n".join([f"{name} cannot be extended by this:", *refusals, ADDABLE_PARTS]))
    return changes


def extend_plan(
    old: Plan,
    new: Plan,
    started_ids: Collection[str],
    extension: Extension,
    unfinished_ids: Collection[str] = (),
) -> Plan:
    """Return `new`, with every trial of `old` unchanged.

    Args:
        old: The present plan.
        new: Plan of the extended spec.
        started_ids: Ids of trials that were requested.
        extension: Record of this extension.
        unfinished_ids: Ids of trials that ended without being finished.

    Raises:
        InputError: A requested trial or an arm would be lost or changed.
    """
    new = replace(new, trials=(*new.trials, *late_trials(old, new, started_ids, unfinished_ids)))
    refusals = [*_lost_arm_refusals(old, new), *_lost_trial_refusals(old, new, started_ids)]
    refusals += _answer_refusals(old, new, started_ids)
    if refusals:
        lines = [f"  {line}" for line in refusals]
        raise InputError("\n".join([f"{old.name} cannot be extended by this:", *lines, ADDABLE_PARTS]))
    return replace(new, trials=tuple(_merge_trials(old, new)), extended=(*old.extended, extension))


def _lost_arm_refusals(old: Plan, new: Plan) -> Iterator[str]:
    arms_by_name = {arm.name: arm for arm in new.arms}
    for arm in old.arms:
        new_arm = arms_by_name.get(arm.name)
        if new_arm is None:
            yield f"arm {arm.name}: would be missing"
        elif _arm_identity(new_arm) != _arm_identity(arm):
            yield f"arm {arm.name}: would have other settings, ranges, first points or another reference"


def _answer_refusals(old: Plan, new: Plan, started_ids: Collection[str]) -> Iterator[str]:
    """Yield a message if the primary outcomes change after confirm trials were requested.

    Without `answer.metric`, the first split determines the primary outcome, so new splits can change it.
    """
    confirmed = any(trial.phase == "confirm" and trial.trial_id in started_ids for trial in old.trials)
    if confirmed and old.outcomes != new.outcomes:
        before, after = (" and ".join(plan.outcomes) or "nothing" for plan in (old, new))
        yield f"the primary outcome: {before} -> {after}, after confirm trials were seen"


def _arm_identity(arm: Arm) -> tuple[Any, ...]:
    return arm.digest, arm.reference, [dict(params) for params in arm.first]


def _lost_trial_refusals(old: Plan, new: Plan, started_ids: Collection[str]) -> Iterator[str]:
    """Yield a message if a trial is lost; a trial that was not requested yet may get another id."""
    ids = {trial.trial_id for trial in new.trials}
    places = {_trial_identity(trial) for trial in new.trials}
    missing = [trial for trial in old.trials if trial.trial_id not in ids]
    lost = [
        trial for trial in missing if trial.trial_id in started_ids or _trial_identity(trial) not in places
    ]
    for trial in lost[:1]:
        remainder = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield f"trial {trial.place} ({trial.trial_id}){remainder}: would change or be missing"


def _trial_identity(trial: PlannedTrial) -> tuple[Any, ...]:
    number = trial.number if trial.phase == "search" else None
    place = (trial.arm, trial.phase, trial.repeat, number, trial.rank, trial.seed, trial.settings_of)
    return (*place, tuple(sorted(trial.overrides.items())))


def _merge_trials(old: Plan, new: Plan) -> list[PlannedTrial]:
    """Return the trials sorted by phase, repeat and arm, with new trials numbered after existing ones."""
    trials_by_id = {trial.trial_id: trial for trial in old.trials}
    groups: dict[tuple[str, int, str], list[PlannedTrial]] = defaultdict(list)
    for trial in new.trials:
        groups[trial.phase, trial.repeat, trial.arm].append(trial)
    trials: list[PlannedTrial] = []
    for phase, repeat, arm in product(PHASES, range(new.repeats), new.arms):
        trials += _number_new_trials(groups[phase, repeat, arm.name], trials_by_id)
    return trials


def _number_new_trials(
    trials: Sequence[PlannedTrial], trial_by_id: Mapping[str, PlannedTrial]
) -> list[PlannedTrial]:
    kept_trials = [trial_by_id[trial.trial_id] for trial in trials if trial.trial_id in trial_by_id]
    first = max((planned_trial.number + 1 for planned_trial in kept_trials), default=0)
    new_trials = (trial for trial in trials if trial.trial_id not in trial_by_id)
    added = [replace(planned_trial, number=number) for number, planned_trial in enumerate(new_trials, first)]
    return [*sorted(kept_trials, key=lambda planned_trial: planned_trial.number), *added]


def _added_splits(old: Plan, new: Plan) -> tuple[str, ...]:
    """Return the splits that confirm trials of `new` read, but confirm trials of `old` do not."""
    if old.confirm is None:
        return ()
    return tuple(split for split in new.test_splits if split not in old.test_splits)


def late_trials(
    old: Plan, new: Plan, started_ids: Collection[str], unfinished_ids: Collection[str]
) -> Iterator[PlannedTrial]:
    """Yield the late trials of `old`, then one for each trial that was requested before splits were added.

    A requested trial reads only the splits that existed at that time. A posthoc trial with the same settings
    reads the added splits. Trials that were not requested yet read all splits.

    Args:
        old: The present plan.
        new: Plan of the extended spec.
        started_ids: Ids of trials that were requested.
        unfinished_ids: Ids of trials that ended without being finished, which have no checkpoint to evaluate.
    """
    yield from (trial for trial in old.trials if trial.late_splits)
    splits = _added_splits(old, new)
    for source in old.trials if splits else ():
        if source.phase in {SEARCH, CROSS} or source.late_splits:
            continue
        if source.trial_id in started_ids and source.trial_id not in unfinished_ids:
            trial_id = digest(source.trial_id, POSTHOC, list(splits))
            # `_merge_trials` numbers the trial with the others of its arm.
            yield replace(source, trial_id=trial_id, phase=POSTHOC, number=0, late_splits=splits)
