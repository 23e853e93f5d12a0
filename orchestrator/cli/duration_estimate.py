"""Estimate the duration of a plan on this machine, from timed steps or from earlier sweeps."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.cli.commands.listing import sweep_folders
from orchestrator.cli.display.running_trials import format_rough_seconds
from orchestrator.cli.locations import runs_root
from orchestrator.errors import HaltsweepError
from orchestrator.files.json_values import to_json_values
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder, digest
from orchestrator.plan.types import Arm, Plan
from orchestrator.provenance import machine
from orchestrator.trials import OutcomeKind, Record
from search_spaces.wording import amount

SPEED_NEUTRAL_SETTINGS = frozenset(
    {"steps", "lr", "schedule", "warmup_steps", "weight_decay", "ponder_weight"}
)
"""Training settings that change the number of steps or the result, but not the time per step."""
MAX_EARLIER_SWEEPS = 20
"""Maximum number of earlier sweeps that are read, since reading a ledger takes time."""


@dataclass(frozen=True, slots=True)
class TrialDurations:
    """Durations of trials of an arm in an earlier sweep on the same kind of machine."""

    sweep: str
    trials: int
    seconds: Mapping[str, float]
    """Mean seconds of a trial in its slot, by phase."""
    per_step: float | None
    """Seconds per step of trials that trained to their end, including evaluation."""


def estimate_duration(plan: Plan, runs: Path | None) -> str:
    """Return a sentence with the estimated duration and its basis; empty if no estimate is possible."""
    from orchestrator.execution.slots import count_slots, local_resources

    num_slots = count_slots([local_resources(None)], plan.resources)
    if not num_slots:
        return ""
    concurrency = (
        f", {amount(num_slots, 'trial')} at a time" if num_slots > 1 else ", one trial after the other"
    )
    if calibrated_seconds := _calibrated_seconds(plan):
        return (
            f"Measured: about {format_rough_seconds(calibrated_seconds / num_slots)} on this "
            f"machine{concurrency}, from timed steps on inputs of full length, if no trial stops early; "
            "without validation and re-evaluations."
        )
    durations = _earlier_durations(plan, runs)
    known_arms = [arm for arm in plan.arms if arm.name in durations]
    seconds = {arm.name: _arm_seconds(plan, arm, durations[arm.name]) for arm in known_arms}
    used_durations = [durations[name] for name, arm_seconds in seconds.items() if arm_seconds]
    if not used_durations:
        return ""
    sweeps = ", ".join(sorted({duration.sweep for duration in used_durations}))
    basis = (
        f"{amount(sum(duration.trials for duration in used_durations), 'trial')} of equal arms in {sweeps}"
    )
    missing_arms = [arm.name for arm in plan.arms if not seconds.get(arm.name)]
    note = f" Without arms that no earlier sweep has run: {', '.join(missing_arms)}." if missing_arms else ""
    return (
        f"About {format_rough_seconds(sum(seconds.values()) / num_slots)} on this machine{concurrency}, from "
        f"the durations of {basis} on this kind of machine.{note}"
    )


def _calibrated_seconds(plan: Plan) -> float:
    """Return the seconds of all steps; 0 unless the steps of every arm were timed."""
    if not plan.prices or any(estimate.seconds_per_step is None for estimate in plan.prices):
        return 0.0
    total = 0.0
    for estimate in plan.prices:
        num_trials = sum(estimate.trials.get(phase, 0) for phase in ("search", "confirm", "cross"))
        total += (
            (estimate.seconds_per_step or 0.0) * num_trials * (_training_steps(plan.arm(estimate.arm)) or 0)
        )
    return total


def _arm_seconds(plan: Plan, arm: Arm, duration: TrialDurations) -> float:
    """Return the estimated seconds of all trials of an arm; 0 if no estimate is possible."""
    steps, total = _training_steps(arm), 0.0
    num_trials = Counter(trial.phase for trial in plan.trials if trial.arm == arm.name)
    for phase, count in num_trials.items():
        if phase in duration.seconds:
            total += count * duration.seconds[phase]
        elif phase != "posthoc" and steps is None:
            return 0.0
        elif phase != "posthoc":
            total += count * (duration.per_step or 0.0) * (steps or 0)
    return total


def _earlier_durations(plan: Plan, runs: Path | None) -> dict[str, TrialDurations]:
    """Return earlier durations by arm, from a sweep with the same arm or an arm with equal time per step."""
    same_arm_durations: dict[str, TrialDurations] = {}
    equal_speed_durations: dict[str, TrialDurations] = {}
    for folder, earlier in islice(_comparable_sweeps(plan, runs), MAX_EARLIER_SWEEPS):
        if len(same_arm_durations) == len(plan.arms):
            break  # older sweeps would be ignored
        name_by_digest = {arm.digest: arm.name for arm in earlier.arms}
        name_by_speed_digest = {_speed_digest(arm): arm.name for arm in earlier.arms}
        names = [
            name_by_digest.get(arm.digest) or name_by_speed_digest.get(_speed_digest(arm))
            for arm in plan.arms
        ]
        if not any(names):
            continue
        records, has_same_stopper = _read_records(folder), _stopper(plan) == _stopper(earlier)
        for arm, name in zip(plan.arms, names, strict=True):
            is_same, trials = (
                arm.digest in name_by_digest,
                [record for record in records if record.arm == name],
            )
            duration = _mean_durations(
                earlier, trials, by_trial=is_same, includes_early_ends=has_same_stopper
            )
            if duration is not None:
                (same_arm_durations if is_same else equal_speed_durations).setdefault(arm.name, duration)
    return equal_speed_durations | same_arm_durations


def _comparable_sweeps(plan: Plan, runs: Path | None) -> Iterator[tuple[SweepFolder, Plan]]:
    """Yield sweeps on the same kind of machine with equal resources per trial.

    The sweep with the plan's own name comes first, then the newest.
    """
    from orchestrator.plan.serialise import read_plan

    this_machine, share = machine(), (plan.resources.cpus, plan.resources.gpus)
    folders = sweep_folders(runs_root(runs))
    for folder in sorted(folders, key=lambda folder: (folder.name != plan.name, -_launched_at(folder))):
        try:
            provenance = json.loads(read_regular(folder.provenance))
            if {name: provenance.get(name) for name in this_machine} != this_machine:
                continue
            earlier_plan = read_plan(folder)
        except (HaltsweepError, OSError, ValueError, AttributeError):
            continue  # skip a sweep that is not readable
        if (
            earlier_plan.trainable == plan.trainable
            and (earlier_plan.resources.cpus, earlier_plan.resources.gpus) == share
        ):
            yield folder, earlier_plan


def _launched_at(folder: SweepFolder) -> float:
    try:
        return folder.provenance.stat().st_mtime
    except OSError:
        return 0.0


def _read_records(folder: SweepFolder) -> list[Record]:
    from orchestrator.cli.stored_sweep import open_stored_sweep

    try:
        with open_stored_sweep(str(folder.root), folder.root.parent) as sweep:
            return sweep.newest_records()
    except HaltsweepError:
        return []


def _stopper(plan: Plan) -> Mapping[str, Any] | None:
    return plan.search.stopper if plan.search is not None else None


def _mean_durations(
    plan: Plan, records: Sequence[Record], *, by_trial: bool, includes_early_ends: bool
) -> TrialDurations | None:
    """Return durations from trials of an arm that ended in their first attempt; None if there are none.

    Args:
        plan: Plan of the earlier sweep.
        records: Trials of the arm.
        by_trial: Whether to compute the mean seconds per trial.
        includes_early_ends: Whether to include trials that ended early, since both sweeps have the same early
            stopper.
    """
    ended_records = [
        record
        for record in records
        if record.attempts == 1
        and record.last
        and record.outcome
        and record.outcome.is_final
        and record.started_at
    ]
    finished_records = [
        trial for trial in ended_records if trial.outcome is OutcomeKind.FINISHED and trial.phase != "posthoc"
    ]
    if not finished_records:
        return None
    seconds: dict[str, list[float]] = {}
    for record in (ended_records if includes_early_ends else finished_records) if by_trial else ():
        seconds.setdefault(record.phase, []).append(_trial_seconds(record))
    steps = sum(record.last.step for record in finished_records if record.last)
    per_step = (
        sum(map(_trial_seconds, finished_records)) / steps if steps and plan.trainable is None else None
    )
    means = {phase: sum(values) / len(values) for phase, values in seconds.items()}
    return TrialDurations(plan.name, len(ended_records), means, per_step)


def _trial_seconds(record: Record) -> float:
    return (record.ended_at or 0.0) - (record.started_at or 0.0)


def _training_steps(arm: Arm) -> int | None:
    train: Mapping[str, Any] = arm.settings.get("train", {})
    steps = train.get("steps") if isinstance(train, Mapping) else None
    return steps if isinstance(steps, int) else None


def _speed_digest(arm: Arm) -> str:
    """Return a digest that is equal for arms with the same time per step."""
    train = arm.settings.get("train", {})
    train_settings = {name: value for name, value in train.items() if name not in SPEED_NEUTRAL_SETTINGS}
    return digest({**arm.settings, "train": train_settings}, to_json_values(arm.space))
